-- purpose: what each subject spent in each state over all that is analysed; the energy_by_* views
-- grain: one row per subject
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
-- param: what VARCHAR | as in state_totals
CREATE OR REPLACE MACRO energy_totals(what) AS TABLE
SELECT
    total.subject,
    total.node_id,
    total.gpus,
    total.obs_ms / 1000.0 AS seen_s,
    total.expected_ms / 1000.0 AS expected_s,
    coalesce(total.active_ms, 0) / 1000.0 AS active_s,
    coalesce(total.execution_idle_ms, 0) / 1000.0 AS execution_idle_s,
    coalesce(total.deep_idle_ms, 0) / 1000.0 AS deep_idle_s,
    coalesce(total.unknown_ms, 0) / 1000.0 AS unknown_s,
    total.energy_uj::DOUBLE / 1e6 AS energy_j,
    total.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    total.active_uj::DOUBLE / 1e6 AS active_j,
    total.execution_idle_uj::DOUBLE / 1e6 AS execution_idle_j,
    total.energy_counter_uj::DOUBLE / 1e6 AS energy_counter_j,
    total.energy_power_avg_uj::DOUBLE / 1e6 AS energy_power_avg_j,
    total.energy_power_inst_uj::DOUBLE / 1e6 AS energy_power_inst_j,
    coalesce(total.execution_idle_ms, 0)
    / nullif(coalesce(total.execution_idle_ms, 0) + coalesce(total.active_ms, 0), 0)
        AS execution_idle_time_share,
    coalesce(total.execution_idle_uj, 0)::DOUBLE / nullif(total.execution_uj, 0)::DOUBLE
        AS execution_idle_energy_share,
    total.energy_obs_ms / nullif(total.obs_ms, 0) AS energy_coverage,
    total.obs_ms / nullif(total.expected_ms, 0) AS coverage,
    total.obs_ms / nullif(total.expected_ms, 0) AS time_coverage
FROM state_totals(what, TIMESTAMP '1990-01-01', TIMESTAMP '9999-01-01') AS total;
