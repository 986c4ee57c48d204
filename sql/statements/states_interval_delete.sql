-- purpose: take away the pieces that begin or end in the ranges given and are no longer so
-- grain: one row per piece
-- units: as in state_interval
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
DELETE FROM state_interval
WHERE hour_utc BETWEEN $first_hour_utc AND $last_hour_utc
  AND EXISTS (
    SELECT 1 FROM stale_range AS r
    WHERE r.gpu_uuid = state_interval.gpu_uuid
      AND r.from_utc <= state_interval.last_ts_utc
      AND r.to_utc >= state_interval.first_ts_utc
)
  AND NOT EXISTS (
    SELECT 1 FROM new_state_interval AS n
    WHERE n.gpu_uuid = state_interval.gpu_uuid
      AND n.first_ts_utc = state_interval.first_ts_utc
      AND n.node_id = state_interval.node_id
      AND n.hour_utc = state_interval.hour_utc
      AND n.last_ts_utc = state_interval.last_ts_utc
      AND n.state = state_interval.state
      AND n.basis = state_interval.basis
      AND n.reason IS NOT DISTINCT FROM state_interval.reason
      AND n.job_key IS NOT DISTINCT FROM state_interval.job_key
      AND n.samples = state_interval.samples
      AND n.obs_ms = state_interval.obs_ms
      AND n.run_ms = state_interval.run_ms
      AND n.energy_counter_uj IS NOT DISTINCT FROM state_interval.energy_counter_uj
      AND n.energy_power_avg_uj IS NOT DISTINCT FROM state_interval.energy_power_avg_uj
      AND n.energy_power_inst_uj IS NOT DISTINCT FROM state_interval.energy_power_inst_uj
      AND n.energy_obs_ms = state_interval.energy_obs_ms
);
