-- purpose: the GPUs that got hottest
-- grain: one row per GPU, at most 20
-- units: °C, W; coverage 0-1 is time observed over time expected, seconds how many have a temperature
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
SELECT
    arg_max(recent.node_id, recent.ts_utc) AS node_id,
    recent.gpu_uuid,
    max(recent.temp_gpu_c) AS max_temp_gpu_c,
    max(recent.temp_mem_c) AS max_temp_mem_c,
    round(avg(coalesce(recent.power_avg_mw, recent.power_inst_mw)) / 1e3, 1) AS mean_power_w,
    round(sum(recent.throttle_thermal_us) / 1e6, 1) AS throttle_thermal_s,
    count(recent.temp_gpu_c) AS seconds,
    round(sum(recent.obs_ms) / greatest(any_value(known.expected_ms), sum(recent.obs_ms)), 4)
        AS coverage
FROM recent_samples($minutes) AS recent
LEFT JOIN expected_recently($minutes) AS known ON recent.gpu_uuid = known.gpu_uuid
GROUP BY recent.gpu_uuid
HAVING count(recent.temp_gpu_c) > 0
ORDER BY max_temp_gpu_c DESC, node_id, recent.gpu_uuid
LIMIT 20;
