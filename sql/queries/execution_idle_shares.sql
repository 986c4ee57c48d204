-- purpose: in-execution share for several minimum lengths, from the raw runs
-- grain: one row per minimum length
-- units: *_h hours of GPU time, *_kwh kilowatt hours, shares and coverage 0-1 (coverage: time seen in
--     all states over time expected; energy_coverage: with an energy over time seen;
--     a run that begins before the period counts from there)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
WITH run AS (
    SELECT
        i.*,
        coalesce(i.energy_counter_uj, 0)
        + coalesce(i.energy_power_avg_uj, 0)
        + coalesce(i.energy_power_inst_uj, 0) AS energy_uj
    FROM state_run AS i
    ANTI JOIN (SELECT gpu_uuid FROM device WHERE parent_uuid IS NOT NULL) AS instance
        ON i.gpu_uuid = instance.gpu_uuid
    WHERE i.raw_state IN ('active', 'low')
      AND i.hour_utc >= window_from($from_utc)
      AND i.hour_utc < window_to($to_utc)
),

step AS (
    SELECT
        *,
        coalesce(
            lag(raw_state) OVER w != raw_state
            OR 2 * epoch_ms(first_ts_utc - lag(last_ts_utc) OVER w) >= 3 * obs_ms / samples,
            true
        ) AS begins
    FROM run
    WINDOW w AS (PARTITION BY gpu_uuid ORDER BY first_ts_utc)
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE begins) OVER (PARTITION BY gpu_uuid ORDER BY first_ts_utc) AS number
    FROM step
),

stretch AS (
    SELECT
        raw_state,
        sum(obs_ms) AS obs_ms,
        sum(energy_uj) AS energy_uj
    FROM numbered
    GROUP BY gpu_uuid, number, raw_state
)

SELECT
    n AS min_interval_s,
    coalesce(sum(obs_ms) FILTER (WHERE raw_state = 'low' AND obs_ms >= 1000 * n - 500), 0) / 3.6e6
        AS execution_idle_h,
    coalesce(sum(obs_ms) FILTER (WHERE raw_state = 'low' AND obs_ms >= 1000 * n - 500), 0)
    / sum(obs_ms) AS time_share,
    coalesce(
        sum(energy_uj) FILTER (WHERE raw_state = 'low' AND obs_ms >= 1000 * n - 500), 0
    )::DOUBLE / 3.6e12 AS execution_idle_kwh,
    coalesce(
        sum(energy_uj) FILTER (WHERE raw_state = 'low' AND obs_ms >= 1000 * n - 500), 0
    )::DOUBLE / nullif(sum(energy_uj)::DOUBLE, 0) AS energy_share,
    any_value(seen.energy_coverage) AS energy_coverage,
    any_value(seen.coverage) AS coverage
FROM stretch
CROSS JOIN (
    SELECT
        sum(energy_obs_ms) / nullif(sum(obs_ms), 0) AS energy_coverage,
        least(sum(obs_ms) / nullif(any_value(expected_ms), 0), 1) AS coverage
    FROM state_totals('state', window_from($from_utc), window_to($to_utc))
) AS seen
CROSS JOIN (VALUES (1), (5), (10), (30), (60)) AS lengths (n)
GROUP BY n
ORDER BY n;
