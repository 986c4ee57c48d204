-- purpose: power and activity of one job, minute by minute
-- grain: one row per UTC minute in which it held a GPU, silent minutes too
-- units: W over all its GPUs, weighted by its share (1 where none is told), over seconds in which at
--     least 90 % of the GPUs held gave a power; NULL where no second did; activity 0-1;
--     observed_gpu_s is how many GPU-seconds have a power, coverage 0-1 that over the time held;
--     usable_s is how many seconds the watts rest on
-- param: job VARCHAR | job_key, cluster:raw_id:attempt
WITH held AS (
    SELECT
        a.gpu_uuid,
        coalesce(a.share, 1) AS share,
        date_trunc('second', a.start_utc + INTERVAL '1.499999 seconds') AS from_utc,
        least(
            date_trunc('second', a.end_utc + INTERVAL '1.499999 seconds'),
            newest_sample() + INTERVAL 1 SECOND
        ) AS to_utc
    FROM allocation AS a
    ANTI JOIN (SELECT gpu_uuid FROM device WHERE parent_uuid IS NOT NULL) AS instance
        ON a.gpu_uuid = instance.gpu_uuid
    WHERE a.job_key = $job AND newest_sample() IS NOT NULL
),

sampled AS (
    SELECT
        sample.ts_utc,
        sum(coalesce(power_avg_mw, power_inst_mw) * held.share) AS power_mw,
        count(coalesce(power_avg_mw, power_inst_mw)) AS powered,
        coalesce(sum(obs_ms) FILTER (coalesce(power_avg_mw, power_inst_mw) IS NOT NULL), 0)
            AS obs_ms,
        sum(sm_active) AS sm_active,
        count(sm_active) AS with_activity
    FROM gpu_sample AS sample
    INNER JOIN held
        ON sample.gpu_uuid = held.gpu_uuid
        AND sample.ts_utc >= held.from_utc
        AND sample.ts_utc < held.to_utc
    WHERE sample.ts_utc >= (SELECT min(from_utc) FROM held)
      AND sample.ts_utc < (SELECT max(to_utc) FROM held)
    GROUP BY sample.ts_utc
),

change AS (
    SELECT
        at_utc,
        sum(sum(step)) OVER (ORDER BY at_utc) AS devices
    FROM (
        SELECT
            from_utc AS at_utc,
            1 AS step
        FROM held
        WHERE from_utc < to_utc
        UNION ALL
        SELECT
            to_utc AS at_utc,
            -1 AS step
        FROM held
        WHERE from_utc < to_utc
    )
    GROUP BY at_utc
),

seconds AS (
    SELECT unnest(range(min(from_utc), max(to_utc), INTERVAL 1 SECOND)) AS ts_utc
    FROM held
),

filled AS (
    SELECT
        seconds.ts_utc,
        sampled.power_mw,
        coalesce(sampled.powered, 0) AS powered,
        coalesce(sampled.obs_ms, 0) AS obs_ms,
        sampled.sm_active,
        sampled.with_activity,
        change.devices,
        coalesce(sampled.powered, 0) > 0
        AND coalesce(sampled.powered, 0) >= 0.9 * change.devices AS usable
    FROM seconds
    LEFT JOIN sampled ON seconds.ts_utc = sampled.ts_utc
    ASOF LEFT JOIN change ON seconds.ts_utc >= change.at_utc
)

SELECT
    date_trunc('minute', ts_utc) AS minute_utc,
    max(powered) AS gpus,
    round(avg(power_mw) FILTER (usable) / 1e3, 1) AS mean_power_w,
    round(sum(sm_active) / sum(with_activity), 3) AS mean_sm_active,
    round(sum(obs_ms) / 1e3) AS observed_gpu_s,
    round(least(sum(obs_ms) / (1e3 * sum(devices)), 1), 4) AS coverage,
    count(*) FILTER (usable) AS usable_s,
    max(devices) AS expected_gpus
FROM filled
WHERE devices > 0
GROUP BY minute_utc
ORDER BY minute_utc;
