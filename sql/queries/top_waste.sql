-- purpose: where watts did no work: execution-idle, and held but empty, the most energy first
-- grain: one row per job, node and kind of waste
-- units: waste_h hours of GPU time, waste_kwh kilowatt hours, power_w mean watt a GPU
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 20 >= 1 | how many
SELECT
    i.job_key,
    any_value(job.user_name) AS user_name,
    i.node_id,
    CASE WHEN i.state = 'deep_idle' THEN 'held_empty' ELSE i.state END AS waste,
    count(DISTINCT i.gpu_uuid) AS gpus,
    sum(i.obs_ms) / 3.6e6 AS waste_h,
    sum(i.energy_uj)::DOUBLE / 3.6e12 AS waste_kwh,
    sum(i.energy_uj)::DOUBLE / 1e3 / nullif(sum(i.energy_obs_ms), 0) AS power_w
FROM state_energy AS i
LEFT JOIN job ON i.job_key = job.job_key
WHERE (i.state = 'execution_idle' OR (i.state = 'deep_idle' AND i.job_key IS NOT NULL))
  AND i.hour_utc >= coalesce(
    CAST($from_utc AS TIMESTAMP),
    (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
)
  AND i.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
GROUP BY i.job_key, i.node_id, i.state
ORDER BY waste_kwh DESC NULLS LAST, waste_h DESC, i.job_key, i.node_id
LIMIT CAST($rows AS BIGINT);
