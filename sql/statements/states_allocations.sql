-- purpose: who held GPUs at any moment of a period; where several did, the one that counts is last
-- grain: one row per GPU, job and interval
-- units: none; an open interval ends with the period
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT
    gpu_uuid,
    job_key,
    start_utc,
    coalesce(end_utc, CAST($to_utc AS TIMESTAMP) + INTERVAL 1 HOUR) AS end_utc
FROM allocation
WHERE start_utc < $to_utc
  AND (end_utc IS NULL OR end_utc > CAST($from_utc AS TIMESTAMP) - INTERVAL 1 SECOND)
ORDER BY share ASC NULLS FIRST, job_key DESC, start_utc ASC;
