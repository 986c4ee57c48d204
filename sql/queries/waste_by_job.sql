-- purpose: which jobs were execution-idle, the most energy first; whole, with what no job held
-- grain: one row per job with execution-idle time; job_key NULL is GPUs that no job held
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares (in execution) and coverage 0-1
--     (coverage: time with an energy over time allocated up to the newest analysed second);
--     longest_run_s within job and window; all_* are sums over every row, also those beyond rows
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
WITH bounds AS (
    SELECT
        coalesce(
            CAST($from_utc AS TIMESTAMP),
            (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
        ) AS from_utc,
        coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01') AS to_utc
),

seen AS (
    SELECT i.*
    FROM state_energy AS i
    CROSS JOIN bounds
    WHERE i.hour_utc >= bounds.from_utc AND i.hour_utc < bounds.to_utc
),

allocated AS (
    SELECT
        a.job_key,
        sum(
            epoch_ms(
                least(coalesce(a.end_utc, analysed.until_utc), analysed.until_utc)
                - greatest(a.start_utc, bounds.from_utc)
            )
        ) AS expected_ms
    FROM allocation AS a
    CROSS JOIN bounds
    CROSS JOIN (SELECT max(last_ts_utc) AS until_utc FROM seen) AS analysed
    WHERE a.start_utc < analysed.until_utc
      AND (a.end_utc IS NULL OR a.end_utc > bounds.from_utc)
    GROUP BY a.job_key
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
    WHERE state = 'execution_idle'
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
        count(DISTINCT gpu_uuid) FILTER (WHERE state = 'execution_idle') AS gpus,
        sum(obs_ms) AS obs_ms,
        sum(energy_obs_ms) AS energy_obs_ms,
        sum(energy_uj) AS energy_uj,
        sum(obs_ms) FILTER (WHERE state = 'execution_idle') AS idle_ms,
        sum(energy_uj) FILTER (WHERE state = 'execution_idle') AS idle_uj,
        sum(energy_uj) FILTER (WHERE state IN ('execution_idle', 'active')) AS execution_uj
    FROM seen
    GROUP BY job_key
    HAVING idle_ms > 0
)

SELECT
    total.job_key,
    job.raw_id,
    job.user_name,
    job.job_class,
    job.job_name,
    total.gpus,
    total.idle_ms / 3.6e6 AS execution_idle_h,
    total.idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    total.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    total.idle_uj::DOUBLE / nullif(total.execution_uj::DOUBLE, 0) AS energy_share,
    longest.longest_ms / 1e3 AS longest_run_s,
    total.energy_obs_ms / greatest(coalesce(allocated.expected_ms, 0), total.obs_ms) AS coverage,
    count(*) OVER () AS all_rows,
    sum(total.idle_ms) OVER () / 3.6e6 AS all_execution_idle_h,
    (sum(total.idle_uj) OVER ())::DOUBLE / 3.6e12 AS all_execution_idle_kwh
FROM total
LEFT JOIN longest ON total.job_key IS NOT DISTINCT FROM longest.job_key
LEFT JOIN job ON total.job_key = job.job_key
LEFT JOIN allocated ON total.job_key = allocated.job_key
ORDER BY execution_idle_kwh DESC NULLS LAST, total.job_key
LIMIT CAST($rows AS BIGINT);
