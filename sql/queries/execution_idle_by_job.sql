-- purpose: which jobs held GPUs without using them, the most energy first
-- grain: one row per job
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: min_job_s INTEGER = 0 >= 0 | leave out jobs that held a GPU for less; the paper takes 7200
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    i.job_key,
    any_value(job.user_name) AS user_name,
    any_value(job.job_class) AS job_class,
    any_value(job.job_name) AS job_name,
    count(DISTINCT i.gpu_uuid) AS gpus,
    round(coalesce(sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle'), 0) / 3.6e6, 4)
        AS execution_idle_h,
    coalesce(sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle'), 0)
    / nullif(sum(i.obs_ms) FILTER (WHERE i.state IN ('execution_idle', 'active')), 0)
        AS time_share,
    sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle')::DOUBLE / 3.6e12
        AS execution_idle_kwh,
    sum(i.energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle')::DOUBLE
    / nullif(sum(i.energy_uj) FILTER (WHERE i.state IN ('execution_idle', 'active'))::DOUBLE, 0)
        AS energy_share,
    sum(i.energy_obs_ms) / sum(i.obs_ms) AS energy_coverage
FROM state_energy AS i
LEFT JOIN job ON i.job_key = job.job_key
WHERE i.job_key IS NOT NULL
  AND i.hour_utc >= coalesce(
    CAST($from_utc AS TIMESTAMP),
    (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
)
  AND i.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
GROUP BY i.job_key
HAVING sum(i.obs_ms) / count(DISTINCT i.gpu_uuid) >= 1000 * CAST($min_job_s AS BIGINT)
ORDER BY execution_idle_kwh DESC NULLS LAST, i.job_key
LIMIT CAST($rows AS BIGINT);
