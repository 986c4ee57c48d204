-- purpose: note that an allocation changed between two instants; only hours with rows count
-- grain: one row per hour
-- units: none
-- param: first_utc TIMESTAMP
-- param: last_utc TIMESTAMP
-- param: change_seq BIGINT
UPDATE hour_change
SET change_seq = $change_seq
WHERE hour_utc >= date_trunc('hour', CAST($first_utc AS TIMESTAMP))
  AND ($last_utc IS NULL OR hour_utc <= CAST($last_utc AS TIMESTAMP));
