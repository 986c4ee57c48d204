-- purpose: how much of each hour was seen and classified, and how current the result is
-- grain: one row per UTC hour with samples
-- units: coverage and shares 0-1; expected is every GPU seen within the hour, for the whole hour,
--     so that the first and the current hour fall short of 1
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 24 hours before the newest
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
SELECT
    h.hour_utc,
    count(DISTINCT i.gpu_uuid) AS gpus,
    h.rows AS samples,
    coalesce(sum(i.samples), 0) AS samples_classified,
    sum(i.obs_ms) / (3600000.0 * count(DISTINCT i.gpu_uuid)) AS coverage,
    sum(i.energy_obs_ms) / sum(i.obs_ms) AS energy_coverage,
    coalesce(sum(i.obs_ms) FILTER (WHERE i.state = 'unknown'), 0) / sum(i.obs_ms) AS unknown_share,
    any_value(r.change_seq) IS NOT DISTINCT FROM h.change_seq AS current,
    any_value(r.finished_utc) AS finished_utc
FROM hour_change AS h
LEFT JOIN state_interval AS i ON h.hour_utc = i.hour_utc
LEFT JOIN analysis_run AS r ON h.hour_utc = r.hour_utc AND r.analysis = 'power_states'
WHERE h.hour_utc >= coalesce(
    CAST($from_utc AS TIMESTAMP), (SELECT max(hour_utc) - INTERVAL 24 HOUR FROM hour_change)
)
  AND h.hour_utc < coalesce(CAST($to_utc AS TIMESTAMP), TIMESTAMP '9999-01-01')
GROUP BY h.hour_utc, h.rows, h.change_seq
ORDER BY h.hour_utc DESC;
