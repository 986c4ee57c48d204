-- purpose: which job holds which GPU when
-- grain: one row per GPU, job and half-open interval
-- units: share and confidence 0-1
-- params: none
CREATE TABLE allocation (
    gpu_uuid VARCHAR NOT NULL,
    start_utc TIMESTAMP NOT NULL,
    end_utc TIMESTAMP,
    job_key VARCHAR NOT NULL,
    share FLOAT,
    rule VARCHAR,
    source VARCHAR,
    confidence FLOAT,
    PRIMARY KEY (gpu_uuid, start_utc, job_key)
);
