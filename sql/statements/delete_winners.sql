-- purpose: remove the rows of a live table whose keys stand in the registered table winner
-- grain: one row per key
-- units: none
-- params: none
DELETE FROM /* table */ AS held USING winner
WHERE held.gpu_uuid = winner.gpu_uuid AND held.ts_utc = winner.ts_utc;
