-- purpose: first and last second of each GPU within one hour, over the tables and files put in
-- grain: one row per GPU
-- units: µs since 1970
-- params: none
SELECT gpu_uuid, epoch_us(min(ts_utc)), epoch_us(max(ts_utc))
FROM (
/* sources */
)
GROUP BY gpu_uuid;
