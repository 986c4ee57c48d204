-- purpose: how far power states are analysed
-- grain: one row
-- units: UTC
-- params: none
SELECT max(last_ts_utc) AS analysed_utc
FROM state_interval;
