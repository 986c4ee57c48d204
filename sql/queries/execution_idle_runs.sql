-- purpose: the longest stretches in which a GPU was held and did nothing
-- grain: one row per piece of a run (cut at hours and owners); run_s is the whole run's length
-- units: *_s seconds, energy_j joule, power_w watt
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: min_run_s INTEGER = 5 >= 1 | shortest run
-- param: rows INTEGER = 100 >= 1 | how many
SELECT
    i.first_ts_utc,
    i.last_ts_utc,
    i.gpu_uuid,
    i.node_id,
    i.job_key,
    job.user_name,
    i.basis,
    i.obs_ms / 1000.0 AS piece_s,
    i.run_ms / 1000.0 AS run_s,
    i.energy_uj::DOUBLE / 1e6 AS energy_j,
    i.energy_uj::DOUBLE / 1e3 / nullif(i.energy_obs_ms, 0) AS power_w
FROM state_energy AS i
LEFT JOIN job ON i.job_key = job.job_key
WHERE i.state = 'execution_idle'
  AND i.run_ms >= 1000 * CAST($min_run_s AS BIGINT)
  AND i.hour_utc >= window_from($from_utc)
  AND i.hour_utc < window_to($to_utc)
ORDER BY i.run_ms DESC, i.gpu_uuid, i.first_ts_utc
LIMIT CAST($rows AS BIGINT);
