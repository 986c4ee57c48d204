-- purpose: every sample, live and sealed; (gpu_uuid, ts_utc) is unique, the higher epoch won
-- grain: one row per GPU or MIG instance and second
-- units: in the column names
-- params: none
CREATE OR REPLACE VIEW gpu_sample AS
SELECT * FROM gpu_sample_none
/* sources */;
