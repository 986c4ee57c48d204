-- purpose: the GPUs that got hottest
-- grain: one row per GPU, at most 20
-- units: °C, W
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample),
recent AS (
    SELECT sample.*
    FROM gpu_sample AS sample, newest
    WHERE sample.ts_utc > newest.ts_utc - to_minutes(CAST($minutes AS INTEGER))
      AND sample.parent_uuid IS NULL
)
SELECT
    node_id,
    gpu_uuid,
    max(temp_gpu_c) AS max_temp_gpu_c,
    max(temp_mem_c) AS max_temp_mem_c,
    round(avg(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS mean_power_w,
    round(sum(throttle_thermal_us) / 1e6, 1) AS throttle_thermal_s,
    count(temp_gpu_c) AS seconds
FROM recent
GROUP BY node_id, gpu_uuid
HAVING count(temp_gpu_c) > 0
ORDER BY max_temp_gpu_c DESC, node_id, gpu_uuid
LIMIT 20;
