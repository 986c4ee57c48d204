-- purpose: which GPUs one job held when, and where they are
-- grain: one row per GPU and half-open interval; end_utc NULL while it lasts
-- units: mW
-- param: job VARCHAR | job_key
SELECT
    a.gpu_uuid,
    a.start_utc,
    a.end_utc,
    device.node_id,
    node.hostname,
    device.gpu_index,
    device.model,
    device.power_limit_default_mw
FROM allocation AS a
LEFT JOIN device ON a.gpu_uuid = device.gpu_uuid
LEFT JOIN node ON device.node_id = node.node_id
WHERE a.job_key = $job
ORDER BY node.hostname, device.node_id, device.gpu_index, a.gpu_uuid, a.start_utc;
