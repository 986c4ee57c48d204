-- purpose: how long each job held each device in a period, whether it was observed or not
-- grain: one row per job and device; MIG instances are left out
-- units: milliseconds of GPU time, counted in stamps: a stamp belongs to who held the device half a
--     second before it
-- param: since_utc TIMESTAMP
-- param: until_utc TIMESTAMP
CREATE OR REPLACE MACRO held_time(since_utc, until_utc) AS TABLE
SELECT
    held.job_key,
    held.gpu_uuid,
    sum(
        epoch_ms(
            least(coalesce(held.to_utc, period.end_utc), period.end_utc)
            - greatest(held.from_utc, period.first_utc)
        )
    ) AS held_ms
FROM (
    SELECT
        job_key,
        gpu_uuid,
        date_trunc('second', start_utc + INTERVAL '1.499999 seconds') AS from_utc,
        date_trunc('second', end_utc + INTERVAL '1.499999 seconds') AS to_utc
    FROM allocation
) AS held
INNER JOIN (SELECT since_utc AS first_utc, until_utc AS end_utc) AS period
    ON held.from_utc < period.end_utc
    AND (held.to_utc IS NULL OR held.to_utc > period.first_utc)
    AND (held.to_utc IS NULL OR held.to_utc > held.from_utc)
ANTI JOIN (SELECT gpu_uuid FROM device WHERE parent_uuid IS NOT NULL) AS instance
    ON held.gpu_uuid = instance.gpu_uuid
WHERE period.first_utc < period.end_utc
GROUP BY held.job_key, held.gpu_uuid;
