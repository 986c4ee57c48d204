-- purpose: whether rows of an hour may come unsorted: live ones, or of files that overlap
-- grain: one row
-- units: none
-- param: hour_utc TIMESTAMP
WITH file AS (
    SELECT
        min_gpu_uuid,
        max(max_gpu_uuid) OVER (
            ORDER BY min_gpu_uuid, max_gpu_uuid
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_gpu_uuid
    FROM segment
    WHERE hour_utc = $hour_utc AND problem IS NULL
)

SELECT
    EXISTS (SELECT 1 FROM live_table WHERE hour_utc = $hour_utc)
    OR EXISTS (SELECT 1 FROM file WHERE min_gpu_uuid <= reached_gpu_uuid);
