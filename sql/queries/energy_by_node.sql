-- purpose: energy of each node, hour by hour, by where the number comes from
-- grain: one row per node and UTC hour
-- units: kWh per source; coverage 0-1 is the share of observed time that has an energy
-- param: hours INTEGER = 24 >= 1 | how far to look back from the newest sample
WITH newest AS (SELECT max(ts_utc) AS ts_utc FROM gpu_sample)
SELECT
    node_id,
    date_trunc('hour', sample.ts_utc) AS hour_utc,
    sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'counter') / 3.6e12 AS counter_kwh,
    sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'power_avg') / 3.6e12 AS power_avg_kwh,
    sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'power_inst') / 3.6e12 AS power_inst_kwh,
    round(coalesce(sum(obs_ms) FILTER (energy_uj IS NOT NULL), 0) / sum(obs_ms), 4) AS coverage
FROM gpu_sample AS sample, newest
WHERE sample.ts_utc > newest.ts_utc - to_hours(CAST($hours AS INTEGER))
  AND parent_uuid IS NULL
GROUP BY node_id, date_trunc('hour', sample.ts_utc)
ORDER BY hour_utc DESC, node_id;
