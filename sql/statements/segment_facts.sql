-- purpose: what a segment file holds
-- grain: one row
-- units: none
-- params: none
SELECT count(*), min(ts_utc), max(ts_utc), min(gpu_uuid), max(gpu_uuid)
FROM /* file */;
