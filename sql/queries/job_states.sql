-- purpose: what each GPU of one job did, how long, on what evidence, and at what energy
-- grain: one row per GPU and state; deep_idle is held but empty
-- units: *_ms milliseconds of GPU time, *_kwh kilowatt hours; runs is how often the state began,
--     longest_run_s its longest run within the job; counter_kwh is the part that the driver's energy
--     counter gave; reason is the one behind the longest piece, where there is one
-- param: job VARCHAR | job_key, cluster:raw_id:attempt
WITH held AS (
    SELECT
        gpu_uuid,
        min(start_utc) AS start_utc
    FROM allocation
    WHERE job_key = $job
    GROUP BY gpu_uuid
),

piece AS (
    SELECT
        i.*,
        least(
            i.run_ms, coalesce(epoch_ms(i.last_ts_utc - held.start_utc), i.run_ms)
        ) AS within_ms,
        coalesce(
            lag(i.state) OVER w <> i.state
            OR 2 * epoch_ms(i.first_ts_utc - lag(i.last_ts_utc) OVER w) >= 3 * i.obs_ms / i.samples,
            true
        ) AS begins
    FROM state_energy AS i
    LEFT JOIN held ON i.gpu_uuid = held.gpu_uuid
    WHERE i.job_key = $job
    WINDOW w AS (PARTITION BY i.gpu_uuid ORDER BY i.first_ts_utc)
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
    max(piece.within_ms) / 1e3 AS longest_run_s,
    arg_max(piece.reason, piece.obs_ms) AS reason,
    min(piece.first_ts_utc) AS first_utc,
    max(piece.last_ts_utc) AS last_utc
FROM piece
LEFT JOIN device ON piece.gpu_uuid = device.gpu_uuid
LEFT JOIN node ON piece.node_id = node.node_id
GROUP BY piece.gpu_uuid, piece.state
ORDER BY piece.gpu_uuid, piece.state;
