-- purpose: time and energy in each state, with what was expected, by whatever a query asks about
-- grain: one row per subject and part; for hours one row per hour_utc
-- units: *_ms milliseconds of GPU time, *_uj microjoule, NULL where no row had an energy;
--     expected_ms NULL where nothing says what to expect (time that no job held); hours, devices
--     and nodes that were silent all the time have a row too, with obs_ms 0
-- param: what VARCHAR | state, hour, gpu, node, node_state, job, user, user_class
-- param: since_utc TIMESTAMP | first UTC hour counted
-- param: before_utc TIMESTAMP | first UTC hour not counted
CREATE OR REPLACE MACRO state_totals(what, since_utc, before_utc) AS TABLE
WITH piece AS NOT MATERIALIZED (
    -- Whatever is counted once is a key here, so that nothing large is counted twice.
    SELECT
        i.subject,
        i.part,
        CASE WHEN what = 'hour' THEN i.hour_utc END AS hour_utc,
        i.gpu_uuid,
        i.job_key,
        arg_max(i.node_id, i.last_ts_utc) AS node_id,
        max(i.last_ts_utc) AS last_ts_utc,
        sum(i.samples) AS samples,
        sum(i.obs_ms) AS obs_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'active') AS active_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'deep_idle') AS deep_idle_ms,
        sum(i.obs_ms) FILTER (WHERE i.state = 'unknown') AS unknown_ms,
        sum(i.obs_ms) FILTER (WHERE i.basis = 'utilisation') AS by_utilisation_ms,
        sum(i.energy_obs_ms) AS energy_obs_ms,
        sum(i.energy_obs_ms) FILTER (WHERE i.state = 'deep_idle') AS empty_energy_obs_ms,
        sum(i.energy_uj) AS energy_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'active') AS active_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle') AS execution_idle_uj,
        sum(i.energy_uj) FILTER (WHERE i.state = 'deep_idle') AS deep_idle_uj,
        sum(i.energy_uj) FILTER (WHERE i.state IN ('execution_idle', 'active')) AS execution_uj,
        sum(i.energy_counter_uj) AS energy_counter_uj,
        sum(i.energy_power_avg_uj) AS energy_power_avg_uj,
        sum(i.energy_power_inst_uj) AS energy_power_inst_uj
    FROM state_subjects(what, since_utc, before_utc) AS i
    GROUP BY ALL
),

total AS NOT MATERIALIZED (
    SELECT
        subject,
        part,
        hour_utc,
        arg_max(node_id, last_ts_utc) AS node_id,
        count(DISTINCT gpu_uuid) AS gpus,
        count(DISTINCT gpu_uuid) FILTER (WHERE execution_idle_ms > 0) AS idle_gpus,
        count(DISTINCT gpu_uuid) FILTER (WHERE deep_idle_ms > 0) AS empty_gpus,
        count(DISTINCT job_key) AS jobs,
        count(DISTINCT job_key) FILTER (WHERE execution_idle_ms > 0) AS idle_jobs,
        sum(samples) AS samples,
        sum(obs_ms) AS obs_ms,
        sum(active_ms) AS active_ms,
        sum(execution_idle_ms) AS execution_idle_ms,
        sum(deep_idle_ms) AS deep_idle_ms,
        sum(unknown_ms) AS unknown_ms,
        sum(by_utilisation_ms) AS by_utilisation_ms,
        sum(energy_obs_ms) AS energy_obs_ms,
        sum(empty_energy_obs_ms) AS empty_energy_obs_ms,
        sum(energy_uj) AS energy_uj,
        sum(active_uj) AS active_uj,
        sum(execution_idle_uj) AS execution_idle_uj,
        sum(deep_idle_uj) AS deep_idle_uj,
        sum(execution_uj) AS execution_uj,
        sum(energy_counter_uj) AS energy_counter_uj,
        sum(energy_power_avg_uj) AS energy_power_avg_uj,
        sum(energy_power_inst_uj) AS energy_power_inst_uj
    FROM piece
    GROUP BY ALL
),

expected AS NOT MATERIALIZED (
    SELECT
        CASE WHEN what = 'gpu' THEN known.gpu_uuid WHEN what <> 'state' THEN known.node_id END
            AS subject,
        NULL AS part,
        NULL AS hour_utc,
        sum(known.expected_ms) AS expected_ms
    FROM expected_time(since_utc, analysed_until(since_utc, before_utc)) AS known
    WHERE what IN ('state', 'gpu', 'node', 'node_state')
    GROUP BY ALL
    UNION ALL
    SELECT
        NULL AS subject,
        NULL AS part,
        known.hour_utc,
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
        NULL AS hour_utc,
        sum(held.held_ms) AS expected_ms
    FROM held_time(since_utc, analysed_until(since_utc, before_utc)) AS held
    LEFT JOIN job ON held.job_key = job.job_key
    WHERE what IN ('job', 'user', 'user_class')
    GROUP BY ALL
)

SELECT
    coalesce(total.subject, expected.subject) AS subject,
    coalesce(total.hour_utc, expected.hour_utc) AS hour_utc,
    total.* EXCLUDE (subject, hour_utc, node_id, obs_ms),
    CASE WHEN what = 'node' THEN coalesce(total.node_id, expected.subject) ELSE total.node_id END
        AS node_id,
    coalesce(total.obs_ms, 0) AS obs_ms,
    CASE WHEN expected.expected_ms IS NOT NULL THEN greatest(expected.expected_ms, total.obs_ms) END
        AS expected_ms
FROM total
FULL JOIN expected
    ON (what = 'state' OR total.subject IS NOT DISTINCT FROM expected.subject)
    AND (what IN ('state', 'node_state') OR total.part IS NOT DISTINCT FROM expected.part)
    AND total.hour_utc IS NOT DISTINCT FROM expected.hour_utc
WHERE total.obs_ms IS NOT NULL OR what IN ('hour', 'gpu', 'node');
