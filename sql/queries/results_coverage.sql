-- purpose: how much of each hour was seen and classified, and how current the result is
-- grain: one row per UTC hour since a device is known; hours without samples too
-- units: coverage and shares 0-1 (coverage: time classified over time expected of every device known,
--     silent ones too, up to the newest analysed second; energy_coverage: with an energy over time
--     classified); samples counts MIG instances too
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
WITH wanted AS (
    SELECT
        hour_utc,
        change_seq,
        rows
    FROM hour_change
    WHERE rows > 0
      AND hour_utc >= window_from($from_utc)
      AND hour_utc < window_to($to_utc)
)

SELECT
    coalesce(wanted.hour_utc, t.hour_utc) AS hour_utc,
    coalesce(t.gpus, 0) AS gpus,
    coalesce(wanted.rows, 0) AS samples,
    coalesce(classified.samples, 0) AS samples_classified,
    coalesce(t.obs_ms, 0) / nullif(t.expected_ms, 0) AS coverage,
    t.energy_obs_ms / nullif(t.obs_ms, 0) AS energy_coverage,
    coalesce(t.unknown_ms, 0) / nullif(t.obs_ms, 0) AS unknown_share,
    r.change_seq IS NOT DISTINCT FROM wanted.change_seq AS current,
    r.finished_utc
FROM wanted
FULL JOIN state_totals('hour', window_from($from_utc), window_to($to_utc)) AS t
    ON wanted.hour_utc = t.hour_utc
LEFT JOIN (
    SELECT
        hour_utc,
        sum(samples) AS samples
    FROM state_interval
    WHERE hour_utc >= window_from($from_utc)
      AND hour_utc < window_to($to_utc)
    GROUP BY hour_utc
) AS classified ON wanted.hour_utc = classified.hour_utc
LEFT JOIN analysis_run AS r ON wanted.hour_utc = r.hour_utc AND r.analysis = 'power_states'
ORDER BY hour_utc DESC;
