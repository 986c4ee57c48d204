-- purpose: note that rows of an hour changed
-- grain: one row per hour
-- units: rows counts samples present; delta may be negative
-- param: hour_utc TIMESTAMP
-- param: change_seq BIGINT
-- param: delta BIGINT
INSERT INTO hour_change VALUES ($hour_utc, $change_seq, $delta)
ON CONFLICT (hour_utc) DO UPDATE
SET change_seq = excluded.change_seq, rows = hour_change.rows + excluded.rows;
