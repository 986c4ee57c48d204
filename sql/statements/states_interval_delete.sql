-- purpose: take away the pieces that begin or end in the ranges given
-- grain: one row per piece
-- units: as in state_interval
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
DELETE FROM state_interval
USING stale_range AS stale
WHERE state_interval.hour_utc BETWEEN $first_hour_utc AND $last_hour_utc
  AND state_interval.gpu_uuid = stale.gpu_uuid
  AND state_interval.last_ts_utc >= stale.from_utc
  AND state_interval.first_ts_utc <= stale.to_utc;
