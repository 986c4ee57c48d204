-- purpose: segment files that answers may use
-- grain: one row per file
-- units: bytes
-- params: none
SELECT path, hour_utc, rows, max_ts_utc, min_gpu_uuid, max_gpu_uuid, size_bytes, sha256
FROM segment
WHERE problem IS NULL AND table_name = 'gpu_sample';
