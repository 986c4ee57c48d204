-- purpose: jobs as the scheduler names them
-- grain: one row per job attempt
-- units: none
-- params: none
CREATE TABLE job (
    job_key VARCHAR NOT NULL,
    cluster VARCHAR,
    raw_id VARCHAR,
    attempt SMALLINT,
    user_name VARCHAR,
    project VARCHAR,
    job_name VARCHAR,
    job_class VARCHAR,
    submit_utc TIMESTAMP,
    start_utc TIMESTAMP,
    end_utc TIMESTAMP,
    PRIMARY KEY (job_key)
);
