-- purpose: which columns which GPU models cannot give, and why
-- grain: one row per model and column
-- units: gpus counts devices
-- params: none
SELECT
    coalesce(device.model, 'unknown') AS model,
    capability.column_name,
    capability.reason,
    count(*) AS gpus
FROM device_capability AS capability
LEFT JOIN device USING (gpu_uuid)
WHERE NOT capability.supported
GROUP BY coalesce(device.model, 'unknown'), capability.column_name, capability.reason
ORDER BY model, column_name;
