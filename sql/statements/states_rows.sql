-- purpose: the columns that decide about power states, for the GPUs given, over half-open time
-- grain: one row per GPU and second
-- units: in the column names; gpu is the position in the list given, energy_source a code
-- param: gpus VARCHAR[]
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
WITH code AS (
    SELECT
        unnest($gpus) AS gpu_uuid,
        unnest(range(len($gpus)))::INTEGER AS gpu
)

SELECT
    code.gpu,
    s.ts_utc,
    s.obs_ms,
    s.resident,
    s.sm_active,
    s.tensor_active,
    s.fp64_active,
    s.fp32_active,
    s.fp16_active,
    s.dram_active,
    s.pcie_tx_bytes_s,
    s.pcie_rx_bytes_s,
    s.nvlink_tx_bytes_s,
    s.nvlink_rx_bytes_s,
    s.util_gpu_pct,
    s.util_mem_pct,
    s.power_avg_mw,
    s.power_inst_mw,
    s.power_limit_mw,
    CASE WHEN s.energy_source = 'counter' AND s.obs_ms > 0 THEN s.energy_uj // s.obs_ms END
        AS mean_power_mw,
    coalesce(s.energy_uj, 0) AS energy_uj,
    CASE
        WHEN s.energy_uj IS NULL THEN -1
        WHEN s.energy_source = 'counter' THEN 0
        WHEN s.energy_source = 'power_avg' THEN 1
        WHEN s.energy_source = 'power_inst' THEN 2
        ELSE -1
    END::TINYINT AS energy_source
FROM gpu_sample AS s
INNER JOIN code ON s.gpu_uuid = code.gpu_uuid
WHERE s.ts_utc >= $from_utc AND s.ts_utc < $to_utc;
