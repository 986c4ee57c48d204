-- purpose: the columns that decide about power states, for a range of GPUs over half-open time
-- grain: one row per GPU and second
-- units: in the column names; gpu is the hash of the name (a string a row costs four times as much
--   to hand over), energy_source the position in counter, power_avg, power_inst
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
-- param: first_gpu VARCHAR
-- param: last_gpu VARCHAR
SELECT
    hash(gpu_uuid) AS gpu,
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
    CASE energy_source
        WHEN 'counter' THEN 0
        WHEN 'power_avg' THEN 1
        WHEN 'power_inst' THEN 2
        ELSE -1
    END::TINYINT AS energy_source
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc
  AND gpu_uuid BETWEEN $first_gpu AND $last_gpu;
