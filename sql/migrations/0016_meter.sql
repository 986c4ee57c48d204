-- purpose: wall power as meters read it, beside the GPUs and never scaled to them
-- grain: one row per meter and tick
-- units: power in milliwatt, energy in microjoule, obs_ms in milliseconds
-- params: none
CREATE TABLE meter (
    node_id VARCHAR NOT NULL,
    meter_id VARCHAR NOT NULL,
    ts_utc TIMESTAMP NOT NULL,
    obs_ms INTEGER NOT NULL,
    power_mw BIGINT,
    energy_uj BIGINT,
    scope VARCHAR,
    source VARCHAR,
    PRIMARY KEY (node_id, meter_id, ts_utc)
);
