-- purpose: what each node's GPUs spent in each state
-- grain: one row per node
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
--     (energy_coverage: time with an energy over time seen; time_coverage: seen over expected,
--     expected from the first to the last sample of each GPU)
-- params: none
CREATE OR REPLACE VIEW energy_by_node AS
WITH per_gpu AS (
    SELECT
        node_id,
        gpu_uuid,
        epoch(max(last_ts_utc) - min(first_ts_utc)) * 1000 + max(obs_ms / samples) AS expected_ms,
        sum(obs_ms) AS obs_ms,
        sum(obs_ms) FILTER (WHERE state = 'active') AS active_ms,
        sum(obs_ms) FILTER (WHERE state = 'execution_idle') AS execution_idle_ms,
        sum(obs_ms) FILTER (WHERE state = 'deep_idle') AS deep_idle_ms,
        sum(obs_ms) FILTER (WHERE state = 'unknown') AS unknown_ms,
        sum(energy_obs_ms) AS energy_obs_ms,
        sum(energy_uj) AS energy_uj,
        sum(energy_uj) FILTER (WHERE state = 'active') AS active_uj,
        sum(energy_uj) FILTER (WHERE state = 'execution_idle') AS execution_idle_uj,
        sum(energy_counter_uj) AS energy_counter_uj,
        sum(energy_power_avg_uj) AS energy_power_avg_uj,
        sum(energy_power_inst_uj) AS energy_power_inst_uj
    FROM state_energy
    GROUP BY ALL
)

SELECT
    node_id,
    count(DISTINCT gpu_uuid) AS gpus,
    sum(obs_ms) / 1000.0 AS seen_s,
    coalesce(sum(active_ms), 0) / 1000.0 AS active_s,
    coalesce(sum(execution_idle_ms), 0) / 1000.0 AS execution_idle_s,
    coalesce(sum(deep_idle_ms), 0) / 1000.0 AS deep_idle_s,
    coalesce(sum(unknown_ms), 0) / 1000.0 AS unknown_s,
    sum(energy_uj)::DOUBLE / 1e6 AS energy_j,
    sum(energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    sum(active_uj)::DOUBLE / 1e6 AS active_j,
    sum(execution_idle_uj)::DOUBLE / 1e6 AS execution_idle_j,
    sum(energy_counter_uj)::DOUBLE / 1e6 AS energy_counter_j,
    sum(energy_power_avg_uj)::DOUBLE / 1e6 AS energy_power_avg_j,
    sum(energy_power_inst_uj)::DOUBLE / 1e6 AS energy_power_inst_j,
    coalesce(sum(execution_idle_ms), 0)
    / nullif(coalesce(sum(execution_idle_ms), 0) + coalesce(sum(active_ms), 0), 0)
        AS execution_idle_time_share,
    coalesce(sum(execution_idle_uj), 0)::DOUBLE
    / nullif(coalesce(sum(execution_idle_uj), 0) + coalesce(sum(active_uj), 0), 0)::DOUBLE
        AS execution_idle_energy_share,
    sum(energy_obs_ms) / sum(obs_ms) AS energy_coverage,
    sum(obs_ms) / sum(expected_ms) AS time_coverage
FROM per_gpu
GROUP BY node_id;
