-- purpose: the last committed batch of each lane, so that a repeated batch is known
-- grain: one row per node, epoch and lane
-- units: seq counts from 1
-- params: none
CREATE TABLE ingest_cursor (
    node_id VARCHAR NOT NULL,
    epoch BIGINT NOT NULL,
    lane VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    committed_utc TIMESTAMP NOT NULL,
    PRIMARY KEY (node_id, epoch, lane)
);
