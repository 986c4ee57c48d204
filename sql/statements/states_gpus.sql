-- purpose: GPUs and MIG instances with samples in a period, and the nodes that held them
-- grain: one row per GPU and node
-- units: none
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT DISTINCT
    gpu_uuid,
    node_id
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc
ORDER BY gpu_uuid, node_id;
