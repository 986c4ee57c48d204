-- purpose: how much of each hour was observed, per node, whole devices only
-- grain: one row per node and UTC hour since the node is known, silent hours too
-- units: milliseconds; coverage 0-1 of what every device known on the node could have given until the
--     newest sample; gpus is how many were seen, expected_gpus how many were known
-- param: hours INTEGER = 24 >= 1 | how many UTC hours, the last of which is the current one
WITH observed AS (
    SELECT
        node_id,
        date_trunc('hour', ts_utc) AS hour_utc,
        gpu_uuid,
        sum(obs_ms) AS observed_ms
    FROM gpu_sample
    WHERE ts_utc >= hours_back($hours) AND parent_uuid IS NULL
    GROUP BY ALL
)

SELECT
    coalesce(known.node_id, observed.node_id) AS node_id,
    coalesce(known.hour_utc, observed.hour_utc) AS hour_utc,
    count(observed.gpu_uuid) AS gpus,
    coalesce(sum(observed.observed_ms), 0) AS observed_ms,
    sum(greatest(coalesce(known.expected_ms, 0), coalesce(observed.observed_ms, 0))) AS expected_ms,
    round(
        coalesce(sum(observed.observed_ms), 0)
        / sum(greatest(coalesce(known.expected_ms, 0), coalesce(observed.observed_ms, 0))),
        4
    ) AS coverage,
    count(*) AS expected_gpus
FROM expected_hours(hours_back($hours), newest_sample() + INTERVAL 1 SECOND) AS known
FULL JOIN observed
    ON known.node_id = observed.node_id
    AND known.hour_utc = observed.hour_utc
    AND known.gpu_uuid = observed.gpu_uuid
GROUP BY ALL
ORDER BY hour_utc DESC, node_id;
