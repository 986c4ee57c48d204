-- purpose: GPUs and MIG instances with samples in a period, and a node that held each
-- grain: one row per GPU
-- units: moved is true where further nodes held the GPU in the period; gpu_hash as in states_rows
-- param: from_utc TIMESTAMP
-- param: to_utc TIMESTAMP
SELECT
    gpu_uuid,
    hash(gpu_uuid) AS gpu_hash,
    first(node_id) AS node_id,
    min(hash(node_id)) <> max(hash(node_id)) AS moved,
    count(*) AS samples
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc
GROUP BY gpu_uuid
ORDER BY gpu_uuid;
