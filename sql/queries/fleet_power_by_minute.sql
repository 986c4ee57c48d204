-- purpose: power of the whole fleet, minute by minute
-- grain: one row per UTC minute since a device is known, silent minutes too
-- units: W, over seconds in which at least 90 % of the devices known gave a power; NULL where no
--     second did; gpus is the most that gave one; observed_gpu_s is how many GPU-seconds have one,
--     coverage 0-1 that over what every device known could have given until the newest sample;
--     usable_s is how many seconds the watts rest on
-- param: minutes INTEGER = 60 >= 1 | how many UTC minutes, the last of which is the current one
WITH sampled AS (
    SELECT
        ts_utc,
        sum(coalesce(power_avg_mw, power_inst_mw)) AS power_mw,
        count(coalesce(power_avg_mw, power_inst_mw)) AS powered,
        coalesce(sum(obs_ms) FILTER (coalesce(power_avg_mw, power_inst_mw) IS NOT NULL), 0) AS obs_ms
    FROM gpu_sample
    WHERE ts_utc >= date_trunc('minute', newest_sample())
        - to_minutes(CAST($minutes AS INTEGER) - 1)
      AND parent_uuid IS NULL
    GROUP BY ts_utc
),

known AS (
    SELECT
        from_utc,
        sum(count(*)) OVER (ORDER BY from_utc) AS devices
    FROM (
        SELECT
            gpu_uuid,
            min(from_utc) AS from_utc
        FROM device_span
        GROUP BY gpu_uuid
    )
    GROUP BY from_utc
),

seconds AS (
    SELECT unnest(
        range(
            date_trunc('minute', newest_sample()) - to_minutes(CAST($minutes AS INTEGER) - 1),
            newest_sample() + INTERVAL 1 SECOND,
            INTERVAL 1 SECOND
        )
    ) AS ts_utc
),

filled AS (
    SELECT
        seconds.ts_utc,
        sampled.power_mw,
        coalesce(sampled.powered, 0) AS powered,
        coalesce(sampled.obs_ms, 0) AS obs_ms,
        greatest(coalesce(known.devices, 0), coalesce(sampled.powered, 0)) AS devices,
        coalesce(sampled.powered, 0) > 0
        AND coalesce(sampled.powered, 0) >= 0.9 * coalesce(known.devices, 0) AS usable
    FROM seconds
    LEFT JOIN sampled ON seconds.ts_utc = sampled.ts_utc
    ASOF LEFT JOIN known ON seconds.ts_utc >= known.from_utc
)

SELECT
    date_trunc('minute', ts_utc) AS minute_utc,
    round(min(power_mw) FILTER (usable) / 1e3, 1) AS min_power_w,
    round(avg(power_mw) FILTER (usable) / 1e3, 1) AS mean_power_w,
    round(max(power_mw) FILTER (usable) / 1e3, 1) AS max_power_w,
    max(powered) AS gpus,
    round(sum(obs_ms) / 1e3) AS observed_gpu_s,
    round(least(sum(obs_ms) / (1e3 * sum(devices)), 1), 4) AS coverage,
    count(*) FILTER (usable) AS usable_s,
    max(devices) AS expected_gpus
FROM filled
WHERE devices > 0
GROUP BY minute_utc
ORDER BY minute_utc;
