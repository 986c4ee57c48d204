-- purpose: devices that are silent now, with the last sample anybody saw of them
-- grain: one row per device
-- units: UTC; NULL where no sample is younger than from_utc
-- param: from_utc TIMESTAMP | look no further back
-- param: recent_utc TIMESTAMP | samples since then are looked at themselves, older ones as analysed
-- param: as_of_utc TIMESTAMP | newest stamp of the page
-- param: gpus VARCHAR[] | the silent devices
WITH silent AS (SELECT unnest(CAST($gpus AS VARCHAR[])) AS gpu_uuid),

seen AS (
    SELECT
        gpu_uuid,
        max(ts_utc) AS last_utc
    FROM gpu_sample
    WHERE ts_utc > $recent_utc AND ts_utc <= $as_of_utc
    GROUP BY gpu_uuid
    UNION ALL
    SELECT
        gpu_uuid,
        max(last_ts_utc) AS last_utc
    FROM state_interval
    WHERE hour_utc >= $from_utc AND hour_utc <= $as_of_utc
    GROUP BY gpu_uuid
)

SELECT
    gpu_uuid,
    max(last_utc) AS last_utc
FROM silent
LEFT JOIN seen USING (gpu_uuid)
GROUP BY gpu_uuid;
