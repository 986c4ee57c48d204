-- purpose: which hours hold samples, and the number of their last change
-- grain: one row per UTC hour
-- units: none
-- param: from_utc TIMESTAMP | first hour of interest
-- param: as_of_utc TIMESTAMP | newest stamp of the page
SELECT
    hour_utc,
    change_seq
FROM hour_change
WHERE hour_utc >= $from_utc AND hour_utc <= $as_of_utc
ORDER BY hour_utc DESC;
