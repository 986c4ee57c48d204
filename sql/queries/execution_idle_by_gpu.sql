-- purpose: which GPUs burned power without working, the most energy first
-- grain: one row per GPU
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (shares: in execution)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 50 >= 1 | how many
SELECT
    i.gpu_uuid,
    arg_max(i.node_id, i.last_ts_utc) AS node_id,
    any_value(device.model) AS model,
    bool_or(i.basis = 'utilisation') AS by_utilisation,
    round(coalesce(sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle'), 0) / 3.6e6, 4)
        AS execution_idle_h,
    coalesce(sum(i.obs_ms) FILTER (WHERE i.state = 'execution_idle'), 0)
    / nullif(sum(i.obs_ms) FILTER (WHERE i.state IN ('execution_idle', 'active')), 0)
        AS time_share,
    sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle')::DOUBLE / 3.6e12
        AS execution_idle_kwh,
    sum(i.energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    sum(i.energy_uj) FILTER (WHERE i.state = 'execution_idle')::DOUBLE
    / nullif(sum(i.energy_uj) FILTER (WHERE i.state IN ('execution_idle', 'active'))::DOUBLE, 0)
        AS energy_share,
    sum(i.energy_obs_ms) / sum(i.obs_ms) AS energy_coverage
FROM state_energy AS i
LEFT JOIN device ON i.gpu_uuid = device.gpu_uuid
WHERE i.hour_utc >= coalesce(
    CAST($from_utc AS TIMESTAMP),
    (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
)
  AND i.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
GROUP BY i.gpu_uuid
ORDER BY execution_idle_kwh DESC NULLS LAST, i.gpu_uuid
LIMIT CAST($rows AS BIGINT);
