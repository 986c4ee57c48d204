-- purpose: which jobs held GPUs without using them, the most energy first
-- grain: one row per job
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution;
--     coverage: time seen over time held; energy_coverage: with an energy over time seen)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: min_job_s INTEGER = 0 >= 0 | leave out jobs that held a GPU for less; the paper takes 7200
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    t.subject AS job_key,
    job.user_name,
    job.job_class,
    job.job_name,
    t.gpus,
    round(coalesce(t.execution_idle_ms, 0) / 3.6e6, 4) AS execution_idle_h,
    coalesce(t.execution_idle_ms, 0)
    / nullif(coalesce(t.execution_idle_ms, 0) + coalesce(t.active_ms, 0), 0) AS time_share,
    t.execution_idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    t.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    t.execution_idle_uj::DOUBLE / nullif(t.execution_uj::DOUBLE, 0) AS energy_share,
    t.energy_obs_ms / nullif(t.obs_ms, 0) AS energy_coverage,
    t.obs_ms / nullif(t.expected_ms, 0) AS coverage
FROM state_totals('job', window_from($from_utc), window_to($to_utc)) AS t
LEFT JOIN job ON t.subject = job.job_key
WHERE t.subject IS NOT NULL
  AND t.obs_ms / t.gpus >= 1000 * CAST($min_job_s AS BIGINT)
ORDER BY execution_idle_kwh DESC NULLS LAST, t.subject
LIMIT CAST($rows AS BIGINT);
