-- purpose: power of the whole fleet, second by second, with how many devices gave a reading
-- grain: one row per UTC second
-- units: mW
-- param: from_utc TIMESTAMP | first second
-- param: to_utc TIMESTAMP | first second no longer wanted
SELECT
    ts_utc,
    sum(coalesce(power_avg_mw, power_inst_mw))::BIGINT AS power_mw,
    count(coalesce(power_avg_mw, power_inst_mw)) AS readings
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc < $to_utc AND parent_uuid IS NULL
GROUP BY ts_utc;
