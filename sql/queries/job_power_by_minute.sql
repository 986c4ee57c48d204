-- purpose: power and activity of one job, minute by minute
-- grain: one row per UTC minute
-- units: W over all its GPUs, weighted by its share; activity 0-1; observed_gpu_s is what it rests on
-- param: job VARCHAR | job_key, cluster:raw_id:attempt
SELECT
    date_trunc('minute', sample.ts_utc) AS minute_utc,
    count(DISTINCT sample.gpu_uuid) AS gpus,
    round(
        sum(coalesce(power_avg_mw, power_inst_mw) * held.share)
        / count(DISTINCT sample.ts_utc) / 1e3,
        1
    ) AS mean_power_w,
    round(avg(sm_active), 3) AS mean_sm_active,
    round(sum(obs_ms) / 1e3) AS observed_gpu_s
FROM gpu_sample AS sample
JOIN allocation AS held
    ON held.gpu_uuid = sample.gpu_uuid
    AND sample.ts_utc - INTERVAL 500 MILLISECOND >= held.start_utc
    AND (held.end_utc IS NULL OR sample.ts_utc - INTERVAL 500 MILLISECOND < held.end_utc)
WHERE held.job_key = $job
GROUP BY minute_utc
ORDER BY minute_utc;
