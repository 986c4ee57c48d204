-- purpose: note which samples and settings the results of an hour reflect
-- grain: one row per analysis and hour
-- units: duration in milliseconds
-- param: analysis VARCHAR
-- param: hour_utc TIMESTAMP
-- param: change_seq BIGINT
-- param: finished_utc TIMESTAMP
-- param: settings_hash VARCHAR
-- param: duration_ms BIGINT
INSERT OR REPLACE INTO analysis_run
VALUES ($analysis, $hour_utc, $change_seq, $finished_utc, $settings_hash, $duration_ms);
