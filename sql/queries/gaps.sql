-- purpose: what was not observed, where and why, newest first
-- grain: one row per hole
-- units: missing_s seconds, NULL where it is not known which were lost, 0 for a step of the clock
--     that lost none; energy that the counter saw across the hole in J
-- param: hours INTEGER = 24 >= 1 | how far to look back from the newest hole
SELECT
    node_id,
    gpu_uuid,
    from_utc,
    to_utc,
    CASE
        WHEN reason = 'given_up_unplaced' THEN NULL
        WHEN reason = 'clock_step' AND from_utc = to_utc THEN 0
        ELSE date_diff('second', from_utc, to_utc) + 1
    END AS missing_s,
    reason,
    round(energy_uj / 1e6, 1) AS energy_j,
    detail
FROM gap
WHERE to_utc > (SELECT max(to_utc) FROM gap) - to_hours(CAST($hours AS INTEGER))
ORDER BY from_utc DESC, node_id, gpu_uuid;
