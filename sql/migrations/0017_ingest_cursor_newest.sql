-- purpose: how far each lane has come in time, so that a hole in it can be placed after a restart
-- grain: one row per node, epoch and lane
-- units: newest_utc is the newest ts_utc committed through the lane; NULL where none is known
-- params: none
ALTER TABLE ingest_cursor ADD COLUMN newest_utc TIMESTAMP;
