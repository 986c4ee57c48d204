-- purpose: power of the GPUs of one job, second by second, with how many of them gave a reading
-- grain: one row per UTC second
-- units: mW
-- param: job VARCHAR | job_key
-- param: from_utc TIMESTAMP | first second
-- param: to_utc TIMESTAMP | first second no longer wanted
SELECT
    s.ts_utc,
    sum(coalesce(s.power_avg_mw, s.power_inst_mw))::BIGINT AS power_mw,
    count(coalesce(s.power_avg_mw, s.power_inst_mw)) AS readings
FROM gpu_sample AS s
INNER JOIN allocation AS held
    ON s.gpu_uuid = held.gpu_uuid
    AND s.ts_utc - INTERVAL 500 MILLISECOND >= held.start_utc
    AND (held.end_utc IS NULL OR s.ts_utc - INTERVAL 500 MILLISECOND < held.end_utc)
WHERE held.job_key = $job
  AND s.ts_utc >= $from_utc
  AND s.ts_utc < $to_utc
  AND s.parent_uuid IS NULL
GROUP BY s.ts_utc;
