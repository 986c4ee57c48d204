-- purpose: what the fleet spent in each power state, and on what evidence
-- grain: one row per state
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
--     (coverage: time seen in all states over time expected, which is every second since each device
--     is known, silent ones too, up to the newest analysed one; energy_coverage: time with an energy
--     over time seen; by_utilisation_s: the part that rests on utilisation because the GPU gives no
--     activity counters)
-- params: none
CREATE OR REPLACE VIEW energy_by_state AS
SELECT
    subject AS state,
    gpus,
    obs_ms / 1000.0 AS seen_s,
    coalesce(by_utilisation_ms, 0) / 1000.0 AS by_utilisation_s,
    energy_uj::DOUBLE / 1e6 AS energy_j,
    energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    energy_counter_uj::DOUBLE / 1e6 AS energy_counter_j,
    energy_power_avg_uj::DOUBLE / 1e6 AS energy_power_avg_j,
    energy_power_inst_uj::DOUBLE / 1e6 AS energy_power_inst_j,
    obs_ms / sum(obs_ms) OVER () AS time_share,
    energy_uj::DOUBLE / (sum(energy_uj) OVER ())::DOUBLE AS energy_share,
    energy_obs_ms / nullif(obs_ms, 0) AS energy_coverage,
    least(sum(obs_ms) OVER () / nullif(expected_ms, 0), 1) AS coverage
FROM state_totals('state', TIMESTAMP '1990-01-01', TIMESTAMP '9999-01-01');
