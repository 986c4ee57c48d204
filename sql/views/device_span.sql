-- purpose: since when each device is known, and on which node; what coverage expects rests on it
-- grain: one row per device and entry of its inventory; whole devices only
-- units: UTC; half-open: from_utc is the first stamp expected, to_utc the first not expected there,
--     9999-01-01 where the device still is; known from its first entry in the inventory, or from its
--     first analysed sample where that is earlier
-- params: none
CREATE OR REPLACE VIEW device_span AS
WITH told AS (
    SELECT
        gpu_uuid,
        node_id,
        date_trunc('second', valid_from_utc + INTERVAL '0.999999 seconds') AS from_utc
    FROM device_history
    WHERE parent_uuid IS NULL
),

seen AS (
    SELECT
        gpu_uuid,
        arg_min(node_id, first_ts_utc) AS node_id,
        min(first_ts_utc) AS from_utc
    FROM state_energy
    GROUP BY gpu_uuid
),

entry AS (
    SELECT * FROM told
    UNION ALL
    SELECT seen.*
    FROM seen
    ANTI JOIN told ON seen.gpu_uuid = told.gpu_uuid AND told.from_utc <= seen.from_utc
)

SELECT
    gpu_uuid,
    node_id,
    from_utc,
    lead(from_utc, 1, TIMESTAMP '9999-01-01') OVER (
        PARTITION BY gpu_uuid ORDER BY from_utc
    ) AS to_utc
FROM entry;
