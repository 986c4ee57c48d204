-- purpose: columns and tables that this version does not know, kept for a later one
-- grain: one row per batch and table
-- units: content is an encoded batch with the unknown columns only
-- params: none
CREATE TABLE set_aside (
    received_utc TIMESTAMP NOT NULL,
    node_id VARCHAR NOT NULL,
    epoch BIGINT NOT NULL,
    lane VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    table_name VARCHAR NOT NULL,
    columns VARCHAR[] NOT NULL,
    content BLOB NOT NULL
);
