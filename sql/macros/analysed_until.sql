-- purpose: the end of what is analysed: the second after the newest one that has a state
-- grain: scalar; NULL where nothing is analysed since since_utc
-- units: UTC
-- param: since_utc TIMESTAMP | look no further back
-- param: before_utc TIMESTAMP | first UTC hour not looked at
CREATE OR REPLACE MACRO analysed_until(since_utc, before_utc) AS (
    SELECT max(state_interval.last_ts_utc) + INTERVAL 1 SECOND
    FROM state_interval
    WHERE state_interval.hour_utc >= since_utc AND state_interval.hour_utc < before_utc
);
