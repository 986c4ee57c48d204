-- purpose: the newest sample of each GPU that was heard of recently
-- grain: one row per GPU
-- units: W, °C, MHz, MiB, ratios 0-1; age_s against the newest sample of the fleet
-- param: minutes INTEGER = 5 | GPUs silent for longer are left out
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample),
recent AS (
    SELECT sample.*
    FROM gpu_sample AS sample, newest
    WHERE sample.ts_utc > newest.ts_utc - to_minutes(CAST($minutes AS INTEGER))
      AND sample.parent_uuid IS NULL
)
SELECT
    recent.node_id,
    recent.gpu_uuid,
    max(recent.ts_utc) AS newest_utc,
    date_diff('second', max(recent.ts_utc), any_value(newest.ts_utc)) AS age_s,
    round(arg_max(coalesce(power_avg_mw, power_inst_mw), recent.ts_utc) / 1e3, 1) AS power_w,
    round(arg_max(sm_active, recent.ts_utc), 3) AS sm_active,
    round(arg_max(dram_active, recent.ts_utc), 3) AS dram_active,
    arg_max(resident, recent.ts_utc) AS resident,
    arg_max(mem_used_mib, recent.ts_utc) AS mem_used_mib,
    arg_max(sm_clock_mhz, recent.ts_utc) AS sm_clock_mhz,
    arg_max(temp_gpu_c, recent.ts_utc) AS temp_gpu_c
FROM recent, newest
GROUP BY recent.node_id, recent.gpu_uuid
ORDER BY recent.node_id, recent.gpu_uuid;
