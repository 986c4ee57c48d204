-- purpose: time and energy of each node in each power state
-- grain: one row per node and state
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (coverage: time of the
--     node seen in all states over time expected; energy_coverage: with an energy over time seen)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
SELECT
    t.subject AS node_id,
    t.part AS state,
    t.gpus,
    t.obs_ms / 3.6e6 AS seen_h,
    t.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    t.obs_ms / sum(t.obs_ms) OVER (PARTITION BY t.subject) AS time_share,
    t.energy_obs_ms / t.obs_ms AS energy_coverage,
    least(
        sum(t.obs_ms) OVER (PARTITION BY t.subject) / nullif(t.expected_ms, 0), 1
    ) AS coverage
FROM state_totals('node_state', window_from($from_utc), window_to($to_utc)) AS t
ORDER BY t.subject, t.part;
