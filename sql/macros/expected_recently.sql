-- purpose: how long each device was expected to be observed within so many minutes up to the newest
--     sample
-- grain: one row per device
-- units: milliseconds of GPU time
-- param: minutes INTEGER
CREATE OR REPLACE MACRO expected_recently(minutes) AS TABLE
SELECT
    gpu_uuid,
    sum(expected_ms) AS expected_ms
FROM expected_time(
    newest_sample() - to_minutes(CAST(minutes AS INTEGER)) + INTERVAL 1 SECOND,
    newest_sample() + INTERVAL 1 SECOND
)
GROUP BY gpu_uuid;
