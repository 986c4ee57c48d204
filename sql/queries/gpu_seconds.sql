-- purpose: every second of one GPU over a period
-- grain: one row per second
-- units: in the column names
-- param: gpu VARCHAR | the GPU's uuid
-- param: from TIMESTAMP | first second, inclusive
-- param: to TIMESTAMP | end, exclusive
SELECT
    ts_utc,
    power_avg_mw,
    power_inst_mw,
    energy_uj,
    energy_source,
    sm_active,
    tensor_active,
    dram_active,
    util_gpu_pct,
    pcie_tx_bytes_s,
    pcie_rx_bytes_s,
    nvlink_tx_bytes_s,
    nvlink_rx_bytes_s,
    mem_used_mib,
    sm_clock_mhz,
    temp_gpu_c,
    resident,
    missing,
    epoch
FROM gpu_sample
WHERE gpu_uuid = $gpu AND ts_utc >= CAST($from AS TIMESTAMP) AND ts_utc < CAST($to AS TIMESTAMP)
ORDER BY ts_utc;
