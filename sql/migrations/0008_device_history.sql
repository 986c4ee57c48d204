-- purpose: inventory of GPUs with validity
-- grain: one row per GPU and change
-- units: in the column names
-- params: none
CREATE TABLE device_history (
    gpu_uuid VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    valid_from_utc TIMESTAMP NOT NULL,
    parent_uuid VARCHAR,
    model VARCHAR,
    arch VARCHAR,
    gpu_index SMALLINT,
    pci_bus_id VARCHAR,
    driver_version VARCHAR,
    mem_total_mib INTEGER,
    power_limit_default_mw INTEGER,
    power_limit_min_mw INTEGER,
    power_limit_max_mw INTEGER,
    sm_clock_max_mhz SMALLINT,
    mem_clock_max_mhz SMALLINT,
    PRIMARY KEY (gpu_uuid, valid_from_utc)
);
