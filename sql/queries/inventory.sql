-- purpose: which GPUs there are and where
-- grain: one row per GPU
-- units: W, MiB
-- params: none
SELECT
    device.node_id,
    node.hostname,
    node.rack,
    node.cluster,
    device.gpu_index,
    device.gpu_uuid,
    device.model,
    device.arch,
    device.driver_version,
    device.mem_total_mib,
    device.power_limit_default_mw / 1000 AS power_limit_default_w,
    device.valid_from_utc
FROM device
LEFT JOIN node USING (node_id)
ORDER BY device.node_id, device.gpu_index, device.gpu_uuid;
