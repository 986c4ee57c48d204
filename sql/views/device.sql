-- purpose: each GPU as last reported
-- grain: one row per GPU
-- units: in the column names
-- params: none
CREATE OR REPLACE VIEW device AS
SELECT
    gpu_uuid,
    node_id,
    valid_from_utc,
    parent_uuid,
    model,
    arch,
    gpu_index,
    pci_bus_id,
    driver_version,
    mem_total_mib,
    power_limit_default_mw,
    power_limit_min_mw,
    power_limit_max_mw,
    sm_clock_max_mhz,
    mem_clock_max_mhz
FROM device_history
QUALIFY row_number() OVER (PARTITION BY gpu_uuid ORDER BY valid_from_utc DESC) = 1;
