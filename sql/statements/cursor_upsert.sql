-- purpose: note the last committed batch of each lane, from the registered table cursor_in
-- grain: one row per node, epoch and lane
-- units: newest_utc only ever moves on
-- params: none
INSERT INTO ingest_cursor BY NAME SELECT * FROM cursor_in
ON CONFLICT (node_id, epoch, lane) DO UPDATE
SET
    seq = excluded.seq,
    committed_utc = excluded.committed_utc,
    newest_utc = greatest(excluded.newest_utc, ingest_cursor.newest_utc);
