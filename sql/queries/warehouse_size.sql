-- purpose: how much is sealed, day by day
-- grain: one row per UTC day
-- units: bytes; bytes_row is bytes per sample
-- params: none
SELECT
    CAST(hour_utc AS DATE) AS day_utc,
    count(*) AS files,
    sum(rows) AS rows,
    sum(size_bytes) AS size_bytes,
    round(sum(size_bytes) / sum(rows), 1) AS bytes_row,
    count(problem) AS damaged_files
FROM segment
GROUP BY day_utc
ORDER BY day_utc DESC;
