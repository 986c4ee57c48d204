-- purpose: rows that cannot be true, kept with the reason
-- grain: one row per refused row
-- units: content is JSON
-- params: none
CREATE TABLE quarantine (
    received_utc TIMESTAMP NOT NULL,
    node_id VARCHAR NOT NULL,
    epoch BIGINT NOT NULL,
    lane VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    table_name VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    content VARCHAR NOT NULL
);
