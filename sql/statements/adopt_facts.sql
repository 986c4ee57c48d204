-- purpose: what a file in the segments folder holds that the catalogue does not name
-- grain: one row
-- units: stamps in µs since 1970; checksum makes every page be read
-- params: none
SELECT
    count(*) AS rows,
    count(DISTINCT (gpu_uuid, ts_utc)) AS different,
    epoch_us(min(ts_utc)) AS first_us,
    epoch_us(max(ts_utc)) AS last_us,
    min(gpu_uuid) AS min_gpu_uuid,
    max(gpu_uuid) AS max_gpu_uuid,
    count(*) FILTER (
        gpu_uuid IS NULL OR ts_utc IS NULL OR obs_ms IS NULL OR node_id IS NULL OR epoch IS NULL
    ) AS unfit,
    bit_xor(hash(/* columns */)) AS checksum
FROM /* file */;
