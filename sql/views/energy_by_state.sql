-- purpose: what the fleet spent in each power state, and on what evidence
-- grain: one row per state
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
--     (energy_coverage: time with an energy over time seen; by_utilisation_s: the part that rests
--     on utilisation because the GPU gives no activity counters)
-- params: none
CREATE OR REPLACE VIEW energy_by_state AS
SELECT
    state,
    count(DISTINCT gpu_uuid) AS gpus,
    sum(obs_ms) / 1000.0 AS seen_s,
    coalesce(sum(obs_ms) FILTER (WHERE basis = 'utilisation'), 0) / 1000.0 AS by_utilisation_s,
    sum(energy_uj)::DOUBLE / 1e6 AS energy_j,
    sum(energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    sum(energy_counter_uj)::DOUBLE / 1e6 AS energy_counter_j,
    sum(energy_power_avg_uj)::DOUBLE / 1e6 AS energy_power_avg_j,
    sum(energy_power_inst_uj)::DOUBLE / 1e6 AS energy_power_inst_j,
    sum(obs_ms) / sum(sum(obs_ms)) OVER () AS time_share,
    sum(energy_uj)::DOUBLE / sum(sum(energy_uj)) OVER ()::DOUBLE AS energy_share,
    sum(energy_obs_ms) / sum(obs_ms) AS energy_coverage
FROM state_energy
GROUP BY state;
