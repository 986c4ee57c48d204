-- purpose: power of the whole fleet, minute by minute
-- grain: one row per UTC minute
-- units: W; observed_gpu_s is how many GPU-seconds the numbers rest on
-- param: minutes INTEGER = 60 >= 1 | how far to look back from the newest sample
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample),
recent AS (
    SELECT sample.*
    FROM gpu_sample AS sample, newest
    WHERE sample.ts_utc > newest.ts_utc - to_minutes(CAST($minutes AS INTEGER))
      AND sample.parent_uuid IS NULL
),
seconds AS (
    SELECT
        ts_utc,
        sum(coalesce(power_avg_mw, power_inst_mw)) AS power_mw,
        count(coalesce(power_avg_mw, power_inst_mw)) AS powered,
        sum(obs_ms) AS obs_ms
    FROM recent
    GROUP BY ts_utc
)
SELECT
    date_trunc('minute', ts_utc) AS minute_utc,
    round(min(power_mw) / 1e3, 1) AS min_power_w,
    round(avg(power_mw) / 1e3, 1) AS mean_power_w,
    round(max(power_mw) / 1e3, 1) AS max_power_w,
    max(powered) AS gpus,
    round(sum(obs_ms) / 1e3) AS observed_gpu_s
FROM seconds
GROUP BY minute_utc
ORDER BY minute_utc;
