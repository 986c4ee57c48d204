-- purpose: what is known of one job
-- grain: one row, NULL where nothing is
-- units: UTC
-- param: job VARCHAR | job_key
SELECT
    asked.job_key,
    job.job_key IS NOT NULL AS known,
    job.raw_id,
    job.job_name,
    job.user_name,
    job.project,
    job.job_class,
    job.cluster,
    job.submit_utc
FROM (SELECT CAST($job AS VARCHAR) AS job_key) AS asked
LEFT JOIN job ON asked.job_key = job.job_key;
