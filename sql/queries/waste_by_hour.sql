-- purpose: energy of every state hour by hour, and which hours are not analysed yet
-- grain: one row per UTC hour with samples and state; state NULL where nothing is analysed
-- units: *_h hours of GPU time, *_kwh kilowatt hours; held_empty is deep idle with an owner;
--     expected_h is that of the hour, in each of its rows: every device known, up to the newest
--     analysed second; all_expected_h is that of every hour, also of those without any sample;
--     current is false where samples came after the analysis
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
WITH wanted AS (
    SELECT
        hour_utc,
        change_seq
    FROM hour_change
    WHERE rows > 0
      AND hour_utc >= window_from($from_utc)
      AND hour_utc < window_to($to_utc)
),

piece AS (
    SELECT
        hour_utc,
        CASE WHEN state = 'deep_idle' AND job_key IS NOT NULL THEN 'held_empty' ELSE state END
            AS state,
        count(DISTINCT gpu_uuid) AS gpus,
        sum(obs_ms) AS obs_ms,
        sum(energy_obs_ms) AS energy_obs_ms,
        sum(energy_uj) AS energy_uj,
        max(last_ts_utc) AS analysed_utc
    FROM state_energy
    WHERE hour_utc >= window_from($from_utc)
      AND hour_utc < window_to($to_utc)
    GROUP BY ALL
),

expected AS (
    SELECT
        hour_utc,
        sum(expected_ms) AS expected_ms,
        sum(sum(expected_ms)) OVER () AS all_expected_ms
    FROM expected_hours(
        window_from($from_utc), analysed_until(window_from($from_utc), window_to($to_utc))
    )
    GROUP BY hour_utc
)

SELECT
    wanted.hour_utc,
    piece.state,
    coalesce(piece.gpus, 0) AS gpus,
    coalesce(piece.obs_ms, 0) / 3.6e6 AS seen_h,
    coalesce(piece.energy_obs_ms, 0) / 3.6e6 AS energy_seen_h,
    coalesce(expected.expected_ms, 0) / 3.6e6 AS expected_h,
    piece.energy_uj::DOUBLE / 3.6e12 AS energy_kwh,
    piece.analysed_utc,
    coalesce(r.change_seq IS NOT DISTINCT FROM wanted.change_seq, false) AS current,
    coalesce((SELECT any_value(all_expected_ms) FROM expected), 0) / 3.6e6 AS all_expected_h
FROM wanted
LEFT JOIN piece ON wanted.hour_utc = piece.hour_utc
LEFT JOIN expected ON wanted.hour_utc = expected.hour_utc
LEFT JOIN analysis_run AS r ON wanted.hour_utc = r.hour_utc AND r.analysis = 'power_states'
ORDER BY wanted.hour_utc, piece.state;
