-- purpose: what each job's GPUs spent in each state while it held them
-- grain: one row per job
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
--     (coverage: time seen over time expected, which is the time that it held them up to
--     the newest analysed second; energy_coverage: time with
--     an energy over time seen; time_coverage: the same as coverage)
-- params: none
CREATE OR REPLACE VIEW energy_by_job AS
SELECT
    subject AS job_key,
    * EXCLUDE (subject, node_id)
FROM energy_totals('job')
WHERE subject IS NOT NULL;
