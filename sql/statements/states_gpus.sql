-- purpose: GPUs and MIG instances with samples in a period, and the node that held each last
-- grain: one row per GPU
-- units: none
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT
    gpu_uuid,
    CASE WHEN min(node_id) = max(node_id) THEN min(node_id) ELSE arg_max(node_id, ts_utc) END
        AS node_id
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc
GROUP BY gpu_uuid
ORDER BY gpu_uuid;
