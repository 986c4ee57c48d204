-- purpose: how long each device was expected to be observed in a period, also while it was silent
-- grain: one row per device and node
-- units: milliseconds of GPU time
-- param: since_utc TIMESTAMP | first stamp expected
-- param: until_utc TIMESTAMP | first stamp not expected any more
CREATE OR REPLACE MACRO expected_time(since_utc, until_utc) AS TABLE
SELECT
    span.gpu_uuid,
    span.node_id,
    sum(
        epoch_ms(least(span.to_utc, period.end_utc) - greatest(span.from_utc, period.first_utc))
    ) AS expected_ms
FROM device_span AS span
INNER JOIN (SELECT since_utc AS first_utc, until_utc AS end_utc) AS period
    ON span.from_utc < period.end_utc AND span.to_utc > period.first_utc
WHERE period.first_utc < period.end_utc
GROUP BY span.gpu_uuid, span.node_id;
