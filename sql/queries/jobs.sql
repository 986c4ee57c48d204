-- purpose: jobs with what their GPUs did over their whole life, the most energy without work first
-- grain: one row per job that held a GPU after from_utc
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1; end_utc NULL while it
--     runs; held_h up to the newest analysed second; execution_idle_share in energy, in execution
-- param: text VARCHAR = NULL | part of key, id, name, user, project or class, case ignored
-- param: from_utc TIMESTAMP = NULL | leave out jobs that ended before; NULL is none
-- param: rows INTEGER = 50 >= 1 | how many
WITH analysed AS (
    SELECT max(last_ts_utc) AS until_utc FROM state_interval
),

held AS (
    SELECT
        a.job_key,
        count(DISTINCT a.gpu_uuid) AS gpus,
        min(a.start_utc) AS start_utc,
        CASE WHEN bool_or(a.end_utc IS NULL) THEN NULL ELSE max(a.end_utc) END AS end_utc,
        sum(
            greatest(
                epoch_ms(
                    least(coalesce(a.end_utc, analysed.until_utc), analysed.until_utc)
                    - a.start_utc
                ),
                0
            )
        ) AS held_ms
    FROM allocation AS a
    CROSS JOIN analysed
    GROUP BY a.job_key
),

wanted AS (
    SELECT
        held.*,
        job.raw_id,
        job.job_name,
        job.user_name,
        job.project,
        job.job_class
    FROM held
    LEFT JOIN job ON held.job_key = job.job_key
    WHERE (
        CAST($from_utc AS TIMESTAMP) IS NULL
        OR held.end_utc IS NULL
        OR held.end_utc > CAST($from_utc AS TIMESTAMP)
    )
      AND contains(
        lower(
            concat_ws(
                ' ', held.job_key, job.raw_id, job.job_name, job.user_name, job.project,
                job.job_class
            )
        ),
        lower(coalesce(CAST($text AS VARCHAR), ''))
    )
),

spent AS (
    SELECT
        i.job_key,
        sum(i.obs_ms) AS seen_ms,
        sum(i.energy_obs_ms) AS energy_seen_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'active') AS active_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'deep_idle') AS held_empty_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'unknown') AS unknown_ms,
        sum(i.energy_uj) AS energy_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'active') AS active_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'deep_idle') AS held_empty_uj
    FROM state_energy AS i
    SEMI JOIN wanted ON i.job_key = wanted.job_key
    GROUP BY i.job_key
)

SELECT
    wanted.job_key,
    wanted.raw_id,
    wanted.job_name,
    wanted.user_name,
    wanted.job_class,
    wanted.gpus,
    wanted.start_utc,
    wanted.end_utc,
    wanted.held_ms / 3.6e6 AS held_h,
    coalesce(spent.seen_ms, 0) / 3.6e6 AS seen_h,
    coalesce(spent.active_ms, 0) / 3.6e6 AS active_h,
    coalesce(spent.execution_idle_ms, 0) / 3.6e6 AS execution_idle_h,
    coalesce(spent.held_empty_ms, 0) / 3.6e6 AS held_empty_h,
    coalesce(spent.unknown_ms, 0) / 3.6e6 AS unknown_h,
    spent.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    spent.execution_idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    spent.held_empty_uj::DOUBLE / 3.6e12 AS held_empty_kwh,
    coalesce(spent.execution_idle_uj, 0)::DOUBLE
    / nullif((coalesce(spent.execution_idle_uj, 0) + coalesce(spent.active_uj, 0))::DOUBLE, 0)
        AS execution_idle_share,
    coalesce(spent.energy_seen_ms, 0)
    / nullif(greatest(wanted.held_ms, coalesce(spent.seen_ms, 0)), 0) AS coverage,
    count(*) OVER () AS all_rows
FROM wanted
LEFT JOIN spent ON wanted.job_key = spent.job_key
ORDER BY
    coalesce(spent.execution_idle_uj, 0) + coalesce(spent.held_empty_uj, 0) DESC,
    wanted.start_utc DESC,
    wanted.job_key
LIMIT CAST($rows AS BIGINT);
