-- purpose: the last seconds of every device, with the columns that decide about its state
-- grain: one row per device and second
-- units: in the column names
-- param: as_of_utc TIMESTAMP | newest stamp of the page
-- param: from_utc TIMESTAMP | where the look back starts
SELECT
    gpu_uuid,
    ts_utc,
    obs_ms,
    resident,
    sm_active,
    tensor_active,
    fp64_active,
    fp32_active,
    fp16_active,
    dram_active,
    pcie_tx_bytes_s,
    pcie_rx_bytes_s,
    nvlink_tx_bytes_s,
    nvlink_rx_bytes_s,
    util_gpu_pct,
    util_mem_pct,
    power_avg_mw,
    power_inst_mw,
    power_limit_mw,
    energy_uj,
    energy_source
FROM gpu_sample
WHERE ts_utc > $from_utc AND ts_utc <= $as_of_utc AND parent_uuid IS NULL;
