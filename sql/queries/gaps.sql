-- purpose: what was not observed, where and why, newest first
-- grain: one row per hole
-- units: seconds; energy that the counter saw across the hole in J
-- param: hours INTEGER = 24 >= 1 | how far to look back from the newest hole
SELECT
    node_id,
    gpu_uuid,
    from_utc,
    to_utc,
    date_diff('second', from_utc, to_utc) + 1 AS missing_s,
    reason,
    round(energy_uj / 1e6, 1) AS energy_j,
    detail
FROM gap
WHERE to_utc > (SELECT max(to_utc) FROM gap) - to_hours(CAST($hours AS INTEGER))
ORDER BY from_utc DESC, node_id, gpu_uuid;
