-- purpose: the rows of the registered table arrived beside what is known of the same allocations
-- grain: one row per arriving allocation
-- units: share 0-1
-- params: none
SELECT
    arrived.start_utc,
    arrived.end_utc,
    held.end_utc AS held_end_utc,
    held.job_key IS NOT NULL AS known,
    coalesce(arrived.share, held.share) IS NOT DISTINCT FROM held.share AS same_share
FROM arrived
LEFT JOIN allocation AS held USING (gpu_uuid, start_utc, job_key);
