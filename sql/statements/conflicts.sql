-- purpose: rows already there for the keys of the registered table suspect
-- grain: one row per conflicting row
-- units: none
-- params: none
SELECT suspect.number, held.epoch, held.source
FROM suspect
JOIN (
/* sources */
) AS held USING (gpu_uuid, ts_utc);
