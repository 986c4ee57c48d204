-- purpose: whose jobs were execution-idle, the most energy first; whole, with what no job held
-- grain: one row per user with execution-idle time; user_name NULL: not known; held_by_job false:
--     GPUs that no job held
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution;
--     coverage: time with an energy over time allocated up to the newest analysed
--     second; observed_coverage: time seen over the same; energy_coverage: with an energy over seen);
--     all_* are sums over every row, also those beyond the limit
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    t.subject AS user_name,
    CAST(t.part AS BOOLEAN) AS held_by_job,
    t.idle_jobs AS jobs,
    t.idle_gpus AS gpus,
    t.execution_idle_ms / 3.6e6 AS execution_idle_h,
    t.execution_idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    t.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    t.execution_idle_uj::DOUBLE / nullif(t.execution_uj::DOUBLE, 0) AS energy_share,
    longest.longest_idle_ms / 1e3 AS longest_run_s,
    t.energy_obs_ms / coalesce(t.expected_ms, t.obs_ms) AS coverage,
    t.obs_ms / t.expected_ms AS observed_coverage,
    t.energy_obs_ms / t.obs_ms AS energy_coverage,
    count(*) OVER () AS all_rows,
    sum(t.execution_idle_ms) OVER () / 3.6e6 AS all_execution_idle_h,
    (sum(t.execution_idle_uj) OVER ())::DOUBLE / 3.6e12 AS all_execution_idle_kwh
FROM state_totals('user', window_from($from_utc), window_to($to_utc)) AS t
LEFT JOIN longest_runs('user', window_from($from_utc), window_to($to_utc)) AS longest
    ON t.subject IS NOT DISTINCT FROM longest.subject
    AND t.part IS NOT DISTINCT FROM longest.part
WHERE t.execution_idle_ms > 0
ORDER BY execution_idle_kwh DESC NULLS LAST, user_name, held_by_job
LIMIT CAST($rows AS BIGINT);
