-- purpose: what the wall meters read beside what the GPUs of the same node read, with the rest and its sign
-- grain: one row per node and UTC hour in which both were read
-- units: kWh; only minutes in which meter and GPUs were both read whole; coverage is their share of the hour, 0-1; the rest is host, conversion and cooling
-- param: hours INTEGER = 24 >= 1 | how far to look back from the newest meter reading
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM meter),
walls AS (
    SELECT
        node_id,
        time_bucket(INTERVAL 1 MINUTE, meter.ts_utc) AS minute_utc,
        sum(energy_uj) AS wall_uj,
        sum(obs_ms) FILTER (energy_uj IS NOT NULL) / count(DISTINCT meter_id) AS wall_ms
    FROM meter, newest
    WHERE scope = 'wall' AND meter.ts_utc > newest.ts_utc - to_hours(CAST($hours AS INTEGER))
    GROUP BY node_id, minute_utc
),
gpus AS (
    SELECT
        node_id,
        time_bucket(INTERVAL 1 MINUTE, sample.ts_utc) AS minute_utc,
        sum(energy_uj) AS gpu_uj,
        sum(obs_ms) FILTER (energy_uj IS NOT NULL) / count(DISTINCT gpu_uuid) AS gpu_ms,
        count(DISTINCT gpu_uuid) AS gpus
    FROM gpu_sample AS sample, newest
    WHERE parent_uuid IS NULL
      AND sample.ts_utc > newest.ts_utc - to_hours(CAST($hours AS INTEGER))
    GROUP BY node_id, minute_utc
)
SELECT
    node_id,
    date_trunc('hour', minute_utc) AS hour_utc,
    max(gpus) AS gpus,
    count(*) AS minutes,
    round(count(*) / 60.0, 4) AS coverage,
    round(sum(wall_uj) / 3.6e12, 4) AS wall_kwh,
    round(sum(gpu_uj) / 3.6e12, 4) AS gpu_kwh,
    round((sum(wall_uj) - sum(gpu_uj)) / 3.6e12, 4) AS rest_kwh
FROM walls
JOIN gpus USING (node_id, minute_utc)
WHERE wall_ms >= 59000 AND gpu_ms >= 59000
GROUP BY node_id, hour_utc
ORDER BY hour_utc DESC, node_id;
