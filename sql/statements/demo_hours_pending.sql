-- purpose: how many past hours are not classified yet
-- grain: one row
-- units: hours
SELECT count(*) AS hours
FROM hour_change AS h
LEFT JOIN analysis_run AS r ON r.hour_utc = h.hour_utc AND r.change_seq >= h.change_seq
WHERE r.hour_utc IS NULL AND h.hour_utc + INTERVAL 1 HOUR < current_timestamp AT TIME ZONE 'UTC'
