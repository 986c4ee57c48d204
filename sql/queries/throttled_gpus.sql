-- purpose: GPUs that were held back by power, heat or the external brake
-- grain: one row per GPU with any
-- units: seconds; share 0-1 of the observed time
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
    sum(throttle_power_us) / 1e6 AS power_s,
    sum(throttle_thermal_us) / 1e6 AS thermal_s,
    sum(throttle_brake_us) / 1e6 AS brake_s,
    round(
        (
            coalesce(sum(throttle_power_us), 0)
            + coalesce(sum(throttle_thermal_us), 0)
            + coalesce(sum(throttle_brake_us), 0)
        ) / (1e3 * sum(obs_ms)),
        4
    ) AS share
FROM recent
GROUP BY node_id, gpu_uuid
HAVING share > 0
ORDER BY share DESC, node_id, gpu_uuid;
