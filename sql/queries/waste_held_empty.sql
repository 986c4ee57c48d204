-- purpose: which jobs held GPUs on which no program ran, the most energy first
-- grain: one row per job with such time
-- units: *_h hours of GPU time, *_kwh kilowatt hours, share of the job's time and coverage 0-1
--     (coverage: time with an energy over time seen empty); all_* are sums over every row
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
WITH seen AS (
    SELECT i.*
    FROM state_energy AS i
    WHERE i.job_key IS NOT NULL
      AND i.hour_utc >= coalesce(
        CAST($from_utc AS TIMESTAMP),
        (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
    )
      AND i.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
),

piece AS (
    SELECT
        job_key,
        gpu_uuid,
        obs_ms,
        first_ts_utc,
        coalesce(
            2 * epoch_ms(first_ts_utc - lag(last_ts_utc) OVER w) >= 3 * obs_ms / samples, true
        ) AS begins
    FROM seen
    WHERE state = 'deep_idle'
    WINDOW w AS (PARTITION BY job_key, gpu_uuid ORDER BY first_ts_utc)
),

run AS (
    SELECT
        job_key,
        sum(obs_ms) AS run_ms
    FROM (
        SELECT
            *,
            count(*) FILTER (WHERE begins)
                OVER (PARTITION BY job_key, gpu_uuid ORDER BY first_ts_utc) AS number
        FROM piece
    )
    GROUP BY job_key, gpu_uuid, number
),

longest AS (
    SELECT
        job_key,
        max(run_ms) AS longest_ms
    FROM run
    GROUP BY job_key
),

total AS (
    SELECT
        job_key,
        count(DISTINCT gpu_uuid) FILTER (WHERE state = 'deep_idle') AS gpus,
        sum(obs_ms) AS obs_ms,
        sum(obs_ms) FILTER (WHERE state = 'deep_idle') AS empty_ms,
        sum(energy_obs_ms) FILTER (WHERE state = 'deep_idle') AS energy_obs_ms,
        sum(energy_uj) FILTER (WHERE state = 'deep_idle') AS empty_uj
    FROM seen
    GROUP BY job_key
    HAVING empty_ms > 0
)

SELECT
    total.job_key,
    job.raw_id,
    job.user_name,
    job.job_class,
    job.job_name,
    total.gpus,
    total.empty_ms / 3.6e6 AS held_empty_h,
    total.empty_uj::DOUBLE / 3.6e12 AS held_empty_kwh,
    total.empty_ms / total.obs_ms AS time_share,
    longest.longest_ms / 1e3 AS longest_run_s,
    total.energy_obs_ms / total.empty_ms AS coverage,
    count(*) OVER () AS all_rows,
    sum(total.empty_ms) OVER () / 3.6e6 AS all_held_empty_h,
    (sum(total.empty_uj) OVER ())::DOUBLE / 3.6e12 AS all_held_empty_kwh
FROM total
LEFT JOIN longest ON total.job_key = longest.job_key
LEFT JOIN job ON total.job_key = job.job_key
ORDER BY held_empty_kwh DESC NULLS LAST, held_empty_h DESC, total.job_key
LIMIT CAST($rows AS BIGINT);
