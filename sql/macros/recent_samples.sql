-- purpose: the samples of whole devices within so many minutes up to the newest sample
-- grain: one row per device and second
-- units: as in gpu_sample
-- param: minutes INTEGER
CREATE OR REPLACE MACRO recent_samples(minutes) AS TABLE
SELECT *
FROM gpu_sample
WHERE ts_utc > newest_sample() - to_minutes(CAST(minutes AS INTEGER))
  AND parent_uuid IS NULL;
