-- purpose: bring the rows of a segment file back to a live table, but those whose keys stand in winner
-- grain: one row per sample
-- units: in the column names
-- params: none
INSERT INTO /* table */ BY NAME
SELECT /* columns */
FROM /* file */ AS sealed
ANTI JOIN winner USING (gpu_uuid, ts_utc);
