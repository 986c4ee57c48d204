-- purpose: raw runs of all GPUs whose hours lie in a closed range
-- grain: one row per run
-- units: as in state_run
-- param: first_hour_utc TIMESTAMP
-- param: last_hour_utc TIMESTAMP
SELECT
    *,
    raw_state || '/' || basis || '/' || coalesce(reason, '') AS kind
FROM state_run
WHERE hour_utc BETWEEN $first_hour_utc AND $last_hour_utc;
