-- purpose: execution-idle over time
-- grain: one row per UTC hour; silent ones too, with coverage 0
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution;
--     coverage: time seen over time expected; energy_coverage: with an energy over time seen)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
SELECT
    t.hour_utc,
    coalesce(t.gpus, 0) AS gpus,
    round(coalesce(t.execution_idle_ms, 0) / 3.6e6, 4) AS execution_idle_h,
    coalesce(t.execution_idle_ms, 0)
    / nullif(coalesce(t.execution_idle_ms, 0) + coalesce(t.active_ms, 0), 0) AS time_share,
    t.execution_idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    t.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    t.execution_idle_uj::DOUBLE / nullif(t.execution_uj::DOUBLE, 0) AS energy_share,
    t.energy_obs_ms / nullif(t.obs_ms, 0) AS energy_coverage,
    t.obs_ms / nullif(t.expected_ms, 0) AS coverage
FROM state_totals('hour', window_from($from_utc), window_to($to_utc)) AS t
ORDER BY t.hour_utc;
