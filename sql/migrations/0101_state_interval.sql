-- purpose: power states after the length rule: what each GPU was doing, and what it cost
-- grain: one row per piece; a state's run is cut at UTC hours, at owners and where the basis changes
-- units: *_ms milliseconds of nominal intervals, energy_*_uj microjoule; stamps inclusive
-- params: none
CREATE TABLE state_interval (
    gpu_uuid VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    hour_utc TIMESTAMP NOT NULL,
    first_ts_utc TIMESTAMP NOT NULL,
    last_ts_utc TIMESTAMP NOT NULL,
    state VARCHAR NOT NULL,
    basis VARCHAR NOT NULL,
    reason VARCHAR,
    job_key VARCHAR,
    samples BIGINT NOT NULL,
    obs_ms BIGINT NOT NULL,
    run_ms BIGINT NOT NULL,
    energy_counter_uj BIGINT,
    energy_power_avg_uj BIGINT,
    energy_power_inst_uj BIGINT,
    energy_obs_ms BIGINT NOT NULL
);
