-- purpose: write one GPU range of a frozen live table as a sorted segment file
-- grain: one row per sample
-- units: in the column names
-- params: none
COPY (
    SELECT *
    FROM /* table */
    WHERE gpu_uuid BETWEEN /* low */ AND /* high */
    ORDER BY gpu_uuid, ts_utc
) TO '/* file */' (
    FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 122880,
    KV_METADATA {idlewatt_sealed_us: '/* sealed_us */'}
);
