-- purpose: the nodes that GPUs already known belong to
-- grain: one row per GPU
-- units: none
-- params: none
INSERT INTO gpu_owner
SELECT
    gpu_uuid,
    TIMESTAMP '1970-01-01' AS from_utc,
    arg_max(node_id, valid_from_utc) AS node_id,
    max(valid_from_utc) AS noted_utc
FROM device_history
GROUP BY gpu_uuid;
