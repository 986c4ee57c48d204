-- purpose: take away the raw runs of a closed range of hours that are no longer so
-- grain: one row per run
-- units: as in state_run
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
DELETE FROM state_run
WHERE hour_utc BETWEEN $first_hour_utc AND $last_hour_utc
  AND NOT EXISTS (
    SELECT 1 FROM new_state_run AS n
    WHERE n.gpu_uuid = state_run.gpu_uuid
      AND n.first_ts_utc = state_run.first_ts_utc
      AND n.hour_utc = state_run.hour_utc
      AND n.node_id = state_run.node_id
      AND n.last_ts_utc = state_run.last_ts_utc
      AND n.raw_state = state_run.raw_state
      AND n.basis = state_run.basis
      AND n.reason IS NOT DISTINCT FROM state_run.reason
      AND n.job_key IS NOT DISTINCT FROM state_run.job_key
      AND n.samples = state_run.samples
      AND n.obs_ms = state_run.obs_ms
      AND n.energy_counter_uj IS NOT DISTINCT FROM state_run.energy_counter_uj
      AND n.energy_power_avg_uj IS NOT DISTINCT FROM state_run.energy_power_avg_uj
      AND n.energy_power_inst_uj IS NOT DISTINCT FROM state_run.energy_power_inst_uj
      AND n.energy_obs_ms = state_run.energy_obs_ms
);
