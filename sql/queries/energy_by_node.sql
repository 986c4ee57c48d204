-- purpose: energy of each node, hour by hour, by where the number comes from
-- grain: one row per node and UTC hour since the node is known, silent hours too
-- units: kWh per source; coverage 0-1 is time observed over time expected of every device known on
--     the node, up to the newest sample; energy_coverage 0-1 is the share of observed time that has an
--     energy
-- param: hours INTEGER = 24 >= 1 | how many UTC hours, the last of which is the current one
WITH observed AS (
    SELECT
        node_id,
        date_trunc('hour', ts_utc) AS hour_utc,
        sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'counter') AS counter_uj,
        sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'power_avg') AS power_avg_uj,
        sum(CAST(energy_uj AS HUGEINT)) FILTER (energy_source = 'power_inst') AS power_inst_uj,
        coalesce(sum(obs_ms) FILTER (energy_uj IS NOT NULL), 0) AS energy_obs_ms,
        sum(obs_ms) AS obs_ms
    FROM gpu_sample
    WHERE ts_utc >= hours_back($hours) AND parent_uuid IS NULL
    GROUP BY ALL
),

known AS (
    SELECT
        node_id,
        hour_utc,
        sum(expected_ms) AS expected_ms
    FROM expected_hours(hours_back($hours), newest_sample() + INTERVAL 1 SECOND)
    GROUP BY ALL
)

SELECT
    coalesce(known.node_id, observed.node_id) AS node_id,
    coalesce(known.hour_utc, observed.hour_utc) AS hour_utc,
    observed.counter_uj / 3.6e12 AS counter_kwh,
    observed.power_avg_uj / 3.6e12 AS power_avg_kwh,
    observed.power_inst_uj / 3.6e12 AS power_inst_kwh,
    round(
        coalesce(observed.obs_ms, 0) / greatest(known.expected_ms, observed.obs_ms), 4
    ) AS coverage,
    round(observed.energy_obs_ms / observed.obs_ms, 4) AS energy_coverage
FROM known
FULL JOIN observed ON known.node_id = observed.node_id AND known.hour_utc = observed.hour_utc
ORDER BY hour_utc DESC, node_id;
