-- purpose: the longest time without work of each subject, as one of its owners had it
-- grain: one row per subject and part with such time
-- units: milliseconds of GPU time; a run ends where the owner changes, and at the edge of the window
-- param: what VARCHAR | state, hour, gpu, node, node_state, job, user, user_class
-- param: since_utc TIMESTAMP | first UTC hour counted
-- param: before_utc TIMESTAMP | first UTC hour not counted
CREATE OR REPLACE MACRO longest_runs(what, since_utc, before_utc) AS TABLE
WITH begun AS (
    SELECT
        subject,
        part,
        gpu_uuid,
        job_key,
        state,
        first_ts_utc,
        obs_ms,
        coalesce(
            2 * epoch_ms(first_ts_utc - lag(last_ts_utc) OVER w) >= 3 * obs_ms / samples, true
        ) AS begins
    FROM state_subjects(what, since_utc, before_utc)
    WHERE state IN ('execution_idle', 'deep_idle')
    WINDOW w AS (PARTITION BY subject, part, gpu_uuid, job_key, state ORDER BY first_ts_utc)
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE begins) OVER (
            PARTITION BY subject, part, gpu_uuid, job_key, state ORDER BY first_ts_utc
        ) AS run
    FROM begun
)

SELECT
    subject,
    part,
    max(ms) FILTER (WHERE state = 'execution_idle') AS longest_idle_ms,
    max(ms) FILTER (WHERE state = 'deep_idle') AS longest_empty_ms
FROM (
    SELECT
        subject,
        part,
        state,
        sum(obs_ms) AS ms
    FROM numbered
    GROUP BY subject, part, gpu_uuid, job_key, state, run
)
GROUP BY subject, part;
