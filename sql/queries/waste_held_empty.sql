-- purpose: which jobs held GPUs on which no program ran, the most energy first
-- grain: one row per job with such time
-- units: *_h hours of GPU time, *_kwh kilowatt hours, share of the job's time and coverage 0-1
--     (coverage and energy_coverage: time with an energy over time seen empty; observed_coverage: time
--     of the job seen over time allocated); all_* are sums over every row
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    t.subject AS job_key,
    job.raw_id,
    job.user_name,
    job.job_class,
    job.job_name,
    t.empty_gpus AS gpus,
    t.deep_idle_ms / 3.6e6 AS held_empty_h,
    t.deep_idle_uj::DOUBLE / 3.6e12 AS held_empty_kwh,
    t.deep_idle_ms / t.obs_ms AS time_share,
    longest.longest_empty_ms / 1e3 AS longest_run_s,
    t.empty_energy_obs_ms / t.deep_idle_ms AS coverage,
    t.obs_ms / t.expected_ms AS observed_coverage,
    t.empty_energy_obs_ms / t.deep_idle_ms AS energy_coverage,
    count(*) OVER () AS all_rows,
    sum(t.deep_idle_ms) OVER () / 3.6e6 AS all_held_empty_h,
    (sum(t.deep_idle_uj) OVER ())::DOUBLE / 3.6e12 AS all_held_empty_kwh
FROM state_totals('job', window_from($from_utc), window_to($to_utc)) AS t
LEFT JOIN longest_runs('job', window_from($from_utc), window_to($to_utc)) AS longest
    ON t.subject IS NOT DISTINCT FROM longest.subject
    AND t.part IS NOT DISTINCT FROM longest.part
LEFT JOIN job ON t.subject = job.job_key
WHERE t.subject IS NOT NULL AND t.deep_idle_ms > 0
ORDER BY held_empty_kwh DESC NULLS LAST, held_empty_h DESC, t.subject
LIMIT CAST($rows AS BIGINT);
