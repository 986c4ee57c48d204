-- purpose: who held GPUs without using them: execution-idle, and held but empty
-- grain: one row per job and kind of waste; without a job, one row per node; whole devices only
-- units: *_ms milliseconds of GPU time, energy_uj microjoule
-- param: from_utc TIMESTAMP | first UTC hour counted
-- param: as_of_utc TIMESTAMP | newest stamp of the page
-- param: ongoing_utc TIMESTAMP | a run that reaches this stamp has not ended
-- param: rows INTEGER | how many rows, the most energy first
WITH seen AS (
    SELECT *
    FROM state_energy
    WHERE hour_utc >= $from_utc AND hour_utc <= $as_of_utc
),

job_time AS (
    SELECT
        job_key,
        sum(obs_ms)::BIGINT AS job_ms
    FROM seen
    WHERE job_key IS NOT NULL
    GROUP BY job_key
),

waste AS (
    SELECT
        job_key,
        state,
        CASE WHEN job_key IS NULL THEN node_id END AS node_id,
        count(DISTINCT gpu_uuid) AS gpus,
        sum(obs_ms)::BIGINT AS waste_ms,
        coalesce(sum(energy_uj), 0)::DOUBLE AS energy_uj,
        sum(energy_obs_ms)::BIGINT AS energy_obs_ms,
        count(DISTINCT gpu_uuid) FILTER (WHERE last_ts_utc >= $ongoing_utc) AS ongoing_gpus,
        min(last_ts_utc - to_milliseconds(run_ms - 1000))
            FILTER (WHERE last_ts_utc >= $ongoing_utc) AS ongoing_since_utc,
        min(first_ts_utc) AS first_utc,
        max(last_ts_utc) AS last_utc
    FROM seen
    WHERE state = 'execution_idle' OR (state = 'deep_idle' AND job_key IS NOT NULL)
    GROUP BY ALL
)

SELECT
    waste.*,
    job_time.job_ms,
    job.raw_id,
    job.job_name,
    job.user_name,
    job.job_class,
    job.end_utc
FROM waste
LEFT JOIN job_time ON waste.job_key = job_time.job_key
LEFT JOIN job ON waste.job_key = job.job_key
ORDER BY waste.energy_uj DESC, waste.waste_ms DESC, waste.job_key, waste.node_id
LIMIT $rows;
