-- purpose: which part of a closed range of seconds a node has no sample of
-- grain: one row; NULL where every second has one
-- units: µs since 1970
-- param: node_id VARCHAR
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT
    epoch_us(min(second.ts_utc)) AS first_us,
    epoch_us(max(second.ts_utc)) AS last_us
FROM (
    SELECT unnest(
        range(
            CAST($from_utc AS TIMESTAMP),
            CAST($to_utc AS TIMESTAMP) + INTERVAL 1 SECOND,
            INTERVAL 1 SECOND
        )
    ) AS ts_utc
) AS second
ANTI JOIN (
    SELECT ts_utc
    FROM gpu_sample
    WHERE node_id = $node_id AND ts_utc >= $from_utc AND ts_utc <= $to_utc
) AS seen ON second.ts_utc = seen.ts_utc;
