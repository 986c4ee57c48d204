-- purpose: the newest stamp of any sample
-- grain: scalar; NULL where there is none
-- units: UTC
-- params: none
CREATE OR REPLACE MACRO newest_sample() AS (
    SELECT max(gpu_sample.ts_utc)
    FROM gpu_sample
    WHERE gpu_sample.ts_utc >= hours_back(1)
);
