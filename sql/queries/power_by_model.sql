-- purpose: power and activity by GPU model
-- grain: one row per model
-- units: W; activity 0-1; coverage 0-1 is time observed over time expected of every GPU of the model,
--     silent ones too; power_coverage is the share of rows that have a power
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
WITH seen AS (
    SELECT
        coalesce(device.model, 'unknown') AS model,
        count(DISTINCT recent.gpu_uuid) AS gpus,
        round(min(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS min_power_w,
        round(avg(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS mean_power_w,
        round(max(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS max_power_w,
        round(avg(sm_active), 3) AS mean_sm_active,
        sum(obs_ms) AS obs_ms,
        round(count(coalesce(power_avg_mw, power_inst_mw)) / count(*), 4) AS power_coverage
    FROM recent_samples($minutes) AS recent
    LEFT JOIN device ON recent.gpu_uuid = device.gpu_uuid
    GROUP BY coalesce(device.model, 'unknown')
),

known AS (
    SELECT
        coalesce(device.model, 'unknown') AS model,
        sum(expected.expected_ms) AS expected_ms
    FROM expected_recently($minutes) AS expected
    LEFT JOIN device ON expected.gpu_uuid = device.gpu_uuid
    GROUP BY coalesce(device.model, 'unknown')
)

SELECT
    coalesce(seen.model, known.model) AS model,
    coalesce(seen.gpus, 0) AS gpus,
    seen.min_power_w,
    seen.mean_power_w,
    seen.max_power_w,
    seen.mean_sm_active,
    round(coalesce(seen.obs_ms, 0) / greatest(known.expected_ms, seen.obs_ms), 4) AS coverage,
    seen.power_coverage
FROM seen
FULL JOIN known ON seen.model = known.model
ORDER BY model;
