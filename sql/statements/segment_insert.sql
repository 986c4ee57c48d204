-- purpose: catalogue one sealed file
-- grain: one row
-- units: bytes
-- param: path VARCHAR
-- param: hour_utc TIMESTAMP
-- param: rows BIGINT
-- param: min_ts_utc TIMESTAMP
-- param: max_ts_utc TIMESTAMP
-- param: min_gpu_uuid VARCHAR
-- param: max_gpu_uuid VARCHAR
-- param: size_bytes BIGINT
-- param: sha256 VARCHAR
-- param: sealed_utc TIMESTAMP
INSERT INTO segment VALUES (
    $path, 'gpu_sample', $hour_utc, $rows, $min_ts_utc, $max_ts_utc,
    $min_gpu_uuid, $max_gpu_uuid, $size_bytes, $sha256, $sealed_utc, NULL
);
