-- purpose: the newest sample of each GPU that was heard of recently, as it came
-- grain: one row per GPU; a value that the newest sample lacks is NULL, whatever came before
-- units: W, °C, MHz, MiB, ratios 0-1; age_s against the newest sample of the fleet
-- param: minutes INTEGER = 5 >= 1 | GPUs silent for longer are left out
WITH latest AS (
    SELECT
        sample.gpu_uuid,
        arg_max(
            struct_pack(
                node_id := sample.node_id,
                ts_utc := sample.ts_utc,
                power_mw := coalesce(sample.power_avg_mw, sample.power_inst_mw),
                sm_active := sample.sm_active,
                dram_active := sample.dram_active,
                resident := sample.resident,
                mem_used_mib := sample.mem_used_mib,
                sm_clock_mhz := sample.sm_clock_mhz,
                temp_gpu_c := sample.temp_gpu_c
            ),
            sample.ts_utc
        ) AS row
    FROM recent_samples($minutes) AS sample
    GROUP BY sample.gpu_uuid
)

SELECT
    latest.row.node_id AS node_id,
    latest.gpu_uuid,
    latest.row.ts_utc AS newest_utc,
    date_diff('second', latest.row.ts_utc, newest_sample()) AS age_s,
    round(latest.row.power_mw / 1e3, 1) AS power_w,
    round(latest.row.sm_active, 3) AS sm_active,
    round(latest.row.dram_active, 3) AS dram_active,
    latest.row.resident AS resident,
    latest.row.mem_used_mib AS mem_used_mib,
    latest.row.sm_clock_mhz AS sm_clock_mhz,
    latest.row.temp_gpu_c AS temp_gpu_c
FROM latest
ORDER BY node_id, latest.gpu_uuid;
