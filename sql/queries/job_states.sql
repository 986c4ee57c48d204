-- purpose: what each GPU of one job did, how long, on what evidence, and at what energy
-- grain: one row per GPU and state; deep_idle is held but empty
-- units: *_ms milliseconds of GPU time, *_kwh kilowatt hours; runs is how often the state began,
--     longest_run_s its longest run within the job; counter_kwh is the part that the driver's energy
--     counter gave; reason is the one behind the longest piece, where there is one
-- param: job VARCHAR | job_key, cluster:raw_id:attempt
WITH piece AS (
    SELECT
        *,
        coalesce(
            2 * epoch_ms(first_ts_utc - lag(last_ts_utc) OVER w) >= 3 * obs_ms / samples, true
        ) AS begins
    FROM state_energy
    WHERE job_key = $job
    WINDOW w AS (PARTITION BY gpu_uuid, state ORDER BY first_ts_utc)
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE begins)
            OVER (PARTITION BY gpu_uuid, state ORDER BY first_ts_utc) AS run
    FROM piece
),

longest AS (
    SELECT
        gpu_uuid,
        state,
        max(run_ms) AS run_ms
    FROM (
        SELECT
            gpu_uuid,
            state,
            sum(obs_ms) AS run_ms
        FROM numbered
        GROUP BY gpu_uuid, state, run
    )
    GROUP BY gpu_uuid, state
)

SELECT
    piece.gpu_uuid,
    arg_max(piece.node_id, piece.last_ts_utc) AS node_id,
    any_value(node.hostname) AS hostname,
    any_value(device.gpu_index) AS gpu_index,
    any_value(device.model) AS model,
    piece.state,
    sum(piece.obs_ms)::BIGINT AS seen_ms,
    sum(piece.energy_obs_ms)::BIGINT AS energy_seen_ms,
    sum(piece.energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    coalesce(sum(piece.energy_counter_uj), 0)::DOUBLE / 3.6e12 AS counter_kwh,
    coalesce(sum(piece.obs_ms) FILTER (WHERE piece.basis = 'utilisation'), 0)::BIGINT
        AS by_utilisation_ms,
    count(*) FILTER (WHERE piece.begins) AS runs,
    any_value(longest.run_ms) / 1e3 AS longest_run_s,
    arg_max(piece.reason, piece.obs_ms) AS reason,
    min(piece.first_ts_utc) AS first_utc,
    max(piece.last_ts_utc) AS last_utc
FROM piece
LEFT JOIN longest ON piece.gpu_uuid = longest.gpu_uuid AND piece.state = longest.state
LEFT JOIN device ON piece.gpu_uuid = device.gpu_uuid
LEFT JOIN node ON piece.node_id = node.node_id
GROUP BY piece.gpu_uuid, piece.state
ORDER BY piece.gpu_uuid, piece.state;
