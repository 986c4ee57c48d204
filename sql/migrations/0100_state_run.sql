-- purpose: raw runs of power states: consecutive rows of one GPU and hour that say the same
-- grain: one row per run; ends at a hole, at an hour, where state, owner or interval change
-- units: *_ms milliseconds of nominal intervals, energy_*_uj microjoule; stamps inclusive
-- params: none
CREATE TABLE state_run (
    hour_utc TIMESTAMP NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    first_ts_utc TIMESTAMP NOT NULL,
    last_ts_utc TIMESTAMP NOT NULL,
    raw_state VARCHAR NOT NULL,
    basis VARCHAR NOT NULL,
    reason VARCHAR,
    job_key VARCHAR,
    samples BIGINT NOT NULL,
    obs_ms BIGINT NOT NULL,
    energy_counter_uj BIGINT,
    energy_power_avg_uj BIGINT,
    energy_power_inst_uj BIGINT,
    energy_obs_ms BIGINT NOT NULL
);
