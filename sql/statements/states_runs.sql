-- purpose: raw runs of the GPUs given whose hours lie in a closed range, and which touch a period
-- grain: one row per run
-- units: as in state_run
-- param: gpus VARCHAR[]
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
WITH wanted AS (SELECT unnest($gpus) AS gpu_uuid)

SELECT
    state_run.*,
    raw_state || '/' || basis || '/' || coalesce(reason, '') AS kind
FROM state_run
INNER JOIN wanted ON state_run.gpu_uuid = wanted.gpu_uuid
WHERE state_run.hour_utc BETWEEN $first_hour_utc AND $last_hour_utc
  AND state_run.last_ts_utc >= $from_utc AND state_run.first_ts_utc < $to_utc;
