-- purpose: which GPUs were execution-idle, the most energy first; whole
-- grain: one row per GPU with execution-idle time
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares (in execution) and coverage 0-1
--     (coverage: time with an energy over time known up to the newest analysed second);
--     all_* are sums over every row, also those beyond the limit
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

expected AS (
    SELECT
        d.gpu_uuid,
        epoch_ms(analysed.until_utc - greatest(min(d.valid_from_utc), bounds.from_utc))
            AS expected_ms
    FROM device_history AS d
    CROSS JOIN bounds
    CROSS JOIN (SELECT max(last_ts_utc) AS until_utc FROM seen) AS analysed
    GROUP BY d.gpu_uuid, bounds.from_utc, analysed.until_utc
),

total AS (
    SELECT
        gpu_uuid,
        arg_max(node_id, last_ts_utc) AS node_id,
        count(DISTINCT job_key) FILTER (WHERE state = 'execution_idle') AS jobs,
        coalesce(
            sum(obs_ms) FILTER (WHERE state = 'execution_idle' AND basis = 'utilisation'), 0
        ) AS utilisation_ms,
        sum(obs_ms) AS obs_ms,
        sum(energy_obs_ms) AS energy_obs_ms,
        sum(energy_uj) AS energy_uj,
        sum(obs_ms) FILTER (WHERE state = 'execution_idle') AS idle_ms,
        sum(energy_uj) FILTER (WHERE state = 'execution_idle') AS idle_uj,
        sum(energy_uj) FILTER (WHERE state IN ('execution_idle', 'active')) AS execution_uj,
        max(run_ms) FILTER (WHERE state = 'execution_idle') AS longest_ms
    FROM seen
    GROUP BY gpu_uuid
    HAVING idle_ms > 0
)

SELECT
    total.gpu_uuid,
    total.node_id,
    node.hostname,
    device.gpu_index,
    device.model,
    total.utilisation_ms > 0.5 * total.idle_ms AS by_utilisation,
    total.jobs,
    total.idle_ms / 3.6e6 AS execution_idle_h,
    total.idle_uj::DOUBLE / 3.6e12 AS execution_idle_kwh,
    total.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    total.idle_uj::DOUBLE / nullif(total.execution_uj::DOUBLE, 0) AS energy_share,
    total.longest_ms / 1e3 AS longest_run_s,
    total.energy_obs_ms / greatest(coalesce(expected.expected_ms, 0), total.obs_ms) AS coverage,
    count(*) OVER () AS all_rows,
    sum(total.idle_ms) OVER () / 3.6e6 AS all_execution_idle_h,
    (sum(total.idle_uj) OVER ())::DOUBLE / 3.6e12 AS all_execution_idle_kwh
FROM total
LEFT JOIN device ON total.gpu_uuid = device.gpu_uuid
LEFT JOIN node ON total.node_id = node.node_id
LEFT JOIN expected ON total.gpu_uuid = expected.gpu_uuid
ORDER BY execution_idle_kwh DESC NULLS LAST, total.gpu_uuid
LIMIT CAST($rows AS BIGINT);
