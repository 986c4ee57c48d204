-- purpose: which GPUs were execution-idle, the most energy first; whole
-- grain: one row per GPU with execution-idle time
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution;
--     coverage: time with an energy over time known up to the newest analysed
--     second; observed_coverage: time seen over the same; energy_coverage: with an energy over seen);
--     all_* are sums over every row, also those beyond the limit
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    t.subject AS gpu_uuid,
    t.node_id,
    node.hostname,
    device.gpu_index,
    device.model,
    coalesce(t.by_utilisation_ms, 0) > 0 AS by_utilisation,
    t.idle_jobs AS jobs,
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
FROM state_totals('gpu', window_from($from_utc), window_to($to_utc)) AS t
LEFT JOIN longest_runs('gpu', window_from($from_utc), window_to($to_utc)) AS longest
    ON t.subject IS NOT DISTINCT FROM longest.subject
    AND t.part IS NOT DISTINCT FROM longest.part
LEFT JOIN device ON t.subject = device.gpu_uuid
LEFT JOIN node ON t.node_id = node.node_id
WHERE t.execution_idle_ms > 0
ORDER BY execution_idle_kwh DESC NULLS LAST, t.subject
LIMIT CAST($rows AS BIGINT);
