-- purpose: time and energy of each node in each power state
-- grain: one row per node and state
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
SELECT
    i.node_id,
    i.state,
    count(DISTINCT i.gpu_uuid) AS gpus,
    sum(i.obs_ms) / 3.6e6 AS seen_h,
    sum(i.energy_uj)::DOUBLE / 3.6e12 AS energy_kwh,
    sum(i.obs_ms) / sum(sum(i.obs_ms)) OVER (PARTITION BY i.node_id) AS time_share,
    sum(i.energy_obs_ms) / sum(i.obs_ms) AS energy_coverage
FROM state_energy AS i
WHERE i.hour_utc >= coalesce(
    CAST($from_utc AS TIMESTAMP),
    (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM state_interval)
)
  AND i.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
GROUP BY i.node_id, i.state
ORDER BY i.node_id, i.state;
