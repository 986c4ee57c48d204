-- purpose: time and energy in each state, with what was expected, by whatever a query asks about
-- grain: one row per subject and part
-- units: *_ms milliseconds of GPU time, *_uj microjoule, NULL where no row had an energy;
--     expected_ms NULL where nothing says what to expect (time that no job held); hours, devices
--     and nodes that were silent all the time have a row too, with obs_ms 0
-- param: what VARCHAR | state, hour, gpu, node, node_state, job, user, user_class
-- param: since_utc TIMESTAMP | first UTC hour counted
-- param: before_utc TIMESTAMP | first UTC hour not counted
CREATE OR REPLACE MACRO state_totals(what, since_utc, before_utc) AS TABLE
WITH seen AS (
    SELECT
        CASE what
            WHEN 'state' THEN i.state
            WHEN 'hour' THEN CAST(i.hour_utc AS VARCHAR)
            WHEN 'gpu' THEN i.gpu_uuid
            WHEN 'node' THEN i.node_id
            WHEN 'node_state' THEN i.node_id
            WHEN 'job' THEN i.job_key
            ELSE job.user_name
        END AS subject,
        CASE what
            WHEN 'node_state' THEN i.state
            WHEN 'user' THEN CAST(i.job_key IS NOT NULL AS VARCHAR)
            WHEN 'user_class' THEN job.job_class
        END AS part,
        i.*
    FROM state_energy AS i
    LEFT JOIN job ON i.job_key = job.job_key
    WHERE i.hour_utc >= since_utc AND i.hour_utc < before_utc
),

-- A run as the subject has it: it ends where the owner changes, and at the edge of the window.
begun AS (
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
    FROM seen
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
),

longest AS (
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
    GROUP BY subject, part
),

total AS (
    SELECT
        i.subject,
        i.part,
        arg_max(i.node_id, i.last_ts_utc) AS node_id,
        count(DISTINCT i.gpu_uuid) AS gpus,
        count(DISTINCT i.gpu_uuid) FILTER (WHERE i.state = 'execution_idle') AS idle_gpus,
        count(DISTINCT i.gpu_uuid) FILTER (WHERE i.state = 'deep_idle') AS empty_gpus,
        count(DISTINCT i.job_key) AS jobs,
        count(DISTINCT i.job_key) FILTER (WHERE i.state = 'execution_idle') AS idle_jobs,
        sum(i.samples) AS samples,
        sum(i.obs_ms) AS obs_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'active') AS active_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'deep_idle') AS deep_idle_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'unknown') AS unknown_ms,
        sum(i.obs_ms) FILTER (WHERE i.basis = 'utilisation') AS by_utilisation_ms,
        sum(i.energy_obs_ms) AS energy_obs_ms,
        sum(i.energy_obs_ms) FILTER (WHERE i.state = 'execution_idle') AS idle_energy_obs_ms,
        sum(i.energy_obs_ms) FILTER (WHERE i.state = 'deep_idle') AS empty_energy_obs_ms,
        sum(i.energy_uj) AS energy_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'active') AS active_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'deep_idle') AS deep_idle_uj,
        sum(i.energy_uj) FILTER (WHERE i.state IN ('execution_idle', 'active')) AS execution_uj,
        sum(i.energy_counter_uj) AS energy_counter_uj,
        sum(i.energy_power_avg_uj) AS energy_power_avg_uj,
        sum(i.energy_power_inst_uj) AS energy_power_inst_uj
    FROM seen AS i
    GROUP BY ALL
),

expected AS (
    SELECT
        CASE WHEN what = 'gpu' THEN known.gpu_uuid WHEN what <> 'state' THEN known.node_id END
            AS subject,
        NULL AS part,
        sum(known.expected_ms) AS expected_ms
    FROM expected_time(since_utc, analysed_until(since_utc, before_utc)) AS known
    WHERE what IN ('state', 'gpu', 'node', 'node_state')
    GROUP BY ALL
    UNION ALL
    SELECT
        CAST(known.hour_utc AS VARCHAR) AS subject,
        NULL AS part,
        sum(known.expected_ms) AS expected_ms
    FROM expected_hours(since_utc, analysed_until(since_utc, before_utc)) AS known
    WHERE what = 'hour'
    GROUP BY known.hour_utc
    UNION ALL
    SELECT
        CASE WHEN what = 'job' THEN held.job_key ELSE job.user_name END AS subject,
        CASE
            WHEN what = 'user' THEN 'true'
            WHEN what = 'user_class' THEN job.job_class
        END AS part,
        sum(held.held_ms) AS expected_ms
    FROM held_time(since_utc, analysed_until(since_utc, before_utc)) AS held
    LEFT JOIN job ON held.job_key = job.job_key
    WHERE what IN ('job', 'user', 'user_class')
    GROUP BY ALL
)

SELECT
    coalesce(total.subject, expected.subject) AS subject,
    total.* EXCLUDE (subject, node_id, obs_ms),
    longest.longest_idle_ms,
    longest.longest_empty_ms,
    CASE WHEN what = 'node' THEN coalesce(total.node_id, expected.subject) ELSE total.node_id END
        AS node_id,
    coalesce(total.obs_ms, 0) AS obs_ms,
    CASE WHEN expected.expected_ms IS NOT NULL THEN greatest(expected.expected_ms, total.obs_ms) END
        AS expected_ms
FROM total
LEFT JOIN longest
    ON total.subject IS NOT DISTINCT FROM longest.subject
    AND total.part IS NOT DISTINCT FROM longest.part
FULL JOIN expected
    ON (what = 'state' OR total.subject IS NOT DISTINCT FROM expected.subject)
    AND (what IN ('state', 'node_state') OR total.part IS NOT DISTINCT FROM expected.part)
WHERE total.obs_ms IS NOT NULL OR what IN ('hour', 'gpu', 'node');
