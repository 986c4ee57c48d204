-- purpose: hours whose results do not reflect the newest samples or settings, newest first
-- grain: one row per UTC hour
-- units: none
-- param: analysis VARCHAR
-- param: settings_hash VARCHAR
SELECT
    hour_change.hour_utc,
    hour_change.change_seq
FROM hour_change
LEFT JOIN analysis_run
    ON analysis_run.hour_utc = hour_change.hour_utc AND analysis_run.analysis = $analysis
WHERE analysis_run.change_seq IS DISTINCT FROM hour_change.change_seq
   OR analysis_run.settings_hash IS DISTINCT FROM $settings_hash
ORDER BY hour_change.hour_utc DESC;
