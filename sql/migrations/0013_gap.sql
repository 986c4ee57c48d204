-- purpose: what was not observed, where and why
-- grain: one row per hole
-- units: energy in microjoule
-- params: none
CREATE TABLE gap (
    node_id VARCHAR NOT NULL,
    gpu_uuid VARCHAR,
    from_utc TIMESTAMP NOT NULL,
    to_utc TIMESTAMP NOT NULL,
    reason VARCHAR NOT NULL,
    energy_uj BIGINT,
    detail VARCHAR
);
