-- purpose: how long each device was expected to be observed in each hour, also in silent ones
-- grain: one row per UTC hour, device and node
-- units: milliseconds of GPU time
-- param: since_utc TIMESTAMP | first stamp expected
-- param: until_utc TIMESTAMP | first stamp not expected any more
CREATE OR REPLACE MACRO expected_hours(since_utc, until_utc) AS TABLE
WITH period AS (
    SELECT
        greatest(
            since_utc,
            least(
                (SELECT min(hour_change.hour_utc) FROM hour_change),
                (SELECT min(device_history.valid_from_utc) FROM device_history)
            )
        ) AS first_utc,
        until_utc AS end_utc
),

hours AS (
    SELECT
        period.*,
        unnest(
            range(date_trunc('hour', period.first_utc), period.end_utc, INTERVAL 1 HOUR)
        ) AS hour_utc
    FROM period
)

SELECT
    hours.hour_utc,
    span.gpu_uuid,
    span.node_id,
    sum(
        epoch_ms(
            least(span.to_utc, hours.end_utc, hours.hour_utc + INTERVAL 1 HOUR)
            - greatest(span.from_utc, hours.first_utc, hours.hour_utc)
        )
    ) AS expected_ms
FROM hours
INNER JOIN device_span AS span
    ON span.from_utc < hours.hour_utc + INTERVAL 1 HOUR
    AND span.from_utc < hours.end_utc
    AND span.to_utc > hours.hour_utc
    AND span.to_utc > hours.first_utc
GROUP BY hours.hour_utc, span.gpu_uuid, span.node_id;
