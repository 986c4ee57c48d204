-- purpose: power and activity by GPU model
-- grain: one row per model
-- units: W; activity 0-1; coverage 0-1 is the share of rows that have a power
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample),
recent AS (
    SELECT sample.*
    FROM gpu_sample AS sample, newest
    WHERE sample.ts_utc > newest.ts_utc - to_minutes(CAST($minutes AS INTEGER))
      AND sample.parent_uuid IS NULL
)
SELECT
    coalesce(device.model, 'unknown') AS model,
    count(DISTINCT recent.gpu_uuid) AS gpus,
    round(min(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS min_power_w,
    round(avg(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS mean_power_w,
    round(max(coalesce(power_avg_mw, power_inst_mw)) / 1e3, 1) AS max_power_w,
    round(avg(sm_active), 3) AS mean_sm_active,
    round(count(coalesce(power_avg_mw, power_inst_mw)) / count(*), 4) AS coverage
FROM recent
LEFT JOIN device USING (gpu_uuid)
GROUP BY coalesce(device.model, 'unknown')
ORDER BY model;
