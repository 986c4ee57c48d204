-- purpose: what each device can give at all, as last probed
-- grain: one row per GPU and column
-- units: none
-- params: none
CREATE OR REPLACE VIEW device_capability AS
SELECT
    gpu_uuid,
    valid_from_utc,
    column_name,
    supported,
    reason
FROM device_capability_history
QUALIFY row_number() OVER (PARTITION BY gpu_uuid, column_name ORDER BY valid_from_utc DESC) = 1;
