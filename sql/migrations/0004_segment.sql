-- purpose: the catalogue of sealed Parquet files
-- grain: one row per file
-- units: size in bytes; times are the first and last ts_utc in the file
-- params: none
CREATE TABLE segment (
    path VARCHAR PRIMARY KEY,
    table_name VARCHAR NOT NULL,
    hour_utc TIMESTAMP NOT NULL,
    rows BIGINT NOT NULL,
    min_ts_utc TIMESTAMP NOT NULL,
    max_ts_utc TIMESTAMP NOT NULL,
    min_gpu_uuid VARCHAR NOT NULL,
    max_gpu_uuid VARCHAR NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    sealed_utc TIMESTAMP NOT NULL,
    problem VARCHAR
);
