-- purpose: what an hour's results have to reflect, and the settings they were computed with last
-- grain: one row
-- units: none; settings_hash is NULL where there are no results yet
-- param: analysis VARCHAR
-- param: hour_utc TIMESTAMP
SELECT
    hour_change.change_seq,
    analysis_run.settings_hash
FROM hour_change
LEFT JOIN analysis_run
    ON analysis_run.hour_utc = hour_change.hour_utc AND analysis_run.analysis = $analysis
WHERE hour_change.hour_utc = $hour_utc;
