-- purpose: the node that held each of a few GPUs last in a period
-- grain: one row per GPU
-- units: none
-- param: gpus VARCHAR[]
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT
    gpu_uuid,
    arg_max(node_id, ts_utc) AS node_id
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc AND list_contains($gpus, gpu_uuid)
GROUP BY gpu_uuid;
