-- purpose: how much of each hour was observed, per node
-- grain: one row per node and UTC hour
-- units: milliseconds; coverage 0-1 of what the GPUs seen in that hour could have given until the newest sample
-- param: hours INTEGER = 24 >= 1 | how far to look back from the newest sample
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample),
hourly AS (
    SELECT
        node_id,
        date_trunc('hour', sample.ts_utc) AS hour_utc,
        count(DISTINCT gpu_uuid) AS gpus,
        sum(obs_ms) AS observed_ms,
        any_value(newest.ts_utc) AS newest_utc
    FROM gpu_sample AS sample, newest
    WHERE sample.ts_utc > newest.ts_utc - to_hours(CAST($hours AS INTEGER))
    GROUP BY node_id, date_trunc('hour', sample.ts_utc)
)
SELECT
    node_id,
    hour_utc,
    gpus,
    observed_ms,
    gpus * least(3600000, date_diff('millisecond', hour_utc, newest_utc) + 1000) AS expected_ms,
    round(observed_ms / expected_ms, 4) AS coverage
FROM hourly
ORDER BY hour_utc DESC, node_id;
