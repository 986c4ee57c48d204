-- purpose: the state intervals of one job on some GPUs, for its time line
-- grain: one row per piece
-- units: obs_ms and samples give the nominal interval of a row; stamps inclusive
-- param: job VARCHAR | job_key
-- param: gpus VARCHAR[] | which GPUs
-- param: from_utc TIMESTAMP | pieces that end before are left out
SELECT
    gpu_uuid,
    state,
    first_ts_utc,
    last_ts_utc,
    obs_ms // samples AS step_ms
FROM state_energy
WHERE job_key = $job
  AND list_contains(CAST($gpus AS VARCHAR[]), gpu_uuid)
  AND last_ts_utc >= $from_utc
ORDER BY gpu_uuid, first_ts_utc;
