-- purpose: add the pieces that are not there yet; what differed was taken away before
-- grain: one row per piece
-- units: as in state_interval
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
INSERT INTO state_interval BY NAME
SELECT n.*
FROM new_state_interval AS n
WHERE NOT EXISTS (
    SELECT 1 FROM state_interval AS old
    WHERE old.gpu_uuid = n.gpu_uuid
      AND old.first_ts_utc = n.first_ts_utc
      AND old.hour_utc BETWEEN $first_hour_utc AND $last_hour_utc
)
ORDER BY n.hour_utc, n.gpu_uuid, n.first_ts_utc;
