-- purpose: GPUs that were held back by power, heat or the external brake
-- grain: one row per GPU with any
-- units: seconds; share 0-1 of the observed time; coverage 0-1 is time observed over time expected
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
SELECT
    arg_max(recent.node_id, recent.ts_utc) AS node_id,
    recent.gpu_uuid,
    sum(recent.throttle_power_us) / 1e6 AS power_s,
    sum(recent.throttle_thermal_us) / 1e6 AS thermal_s,
    sum(recent.throttle_brake_us) / 1e6 AS brake_s,
    round(
        (
            coalesce(sum(recent.throttle_power_us), 0)
            + coalesce(sum(recent.throttle_thermal_us), 0)
            + coalesce(sum(recent.throttle_brake_us), 0)
        ) / (1e3 * sum(recent.obs_ms)),
        4
    ) AS share,
    round(sum(recent.obs_ms) / greatest(any_value(known.expected_ms), sum(recent.obs_ms)), 4)
        AS coverage
FROM recent_samples($minutes) AS recent
LEFT JOIN expected_recently($minutes) AS known ON recent.gpu_uuid = known.gpu_uuid
GROUP BY recent.gpu_uuid
HAVING share > 0
ORDER BY share DESC, node_id, recent.gpu_uuid;
