-- purpose: pieces of power states with whatever a query asks about
-- grain: one row per piece; subject and part NULL for hours
-- units: as in state_energy
-- param: what VARCHAR | state, hour, gpu, node, node_state, job, user, user_class
-- param: since_utc TIMESTAMP | first UTC hour counted
-- param: before_utc TIMESTAMP | first UTC hour not counted
CREATE OR REPLACE MACRO state_subjects(what, since_utc, before_utc) AS TABLE
SELECT
    CASE what
        WHEN 'state' THEN i.state
        WHEN 'gpu' THEN i.gpu_uuid
        WHEN 'node' THEN i.node_id
        WHEN 'node_state' THEN i.node_id
        WHEN 'job' THEN i.job_key
        WHEN 'user' THEN job.user_name
        WHEN 'user_class' THEN job.user_name
    END AS subject,
    CASE what
        WHEN 'node_state' THEN i.state
        WHEN 'user' THEN CAST(i.job_key IS NOT NULL AS VARCHAR)
        WHEN 'user_class' THEN job.job_class
    END AS part,
    i.*
FROM state_energy AS i
LEFT JOIN (SELECT * FROM job WHERE what IN ('user', 'user_class')) AS job
    ON i.job_key = job.job_key
WHERE i.hour_utc >= since_utc AND i.hour_utc < before_utc;
