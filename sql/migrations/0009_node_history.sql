-- purpose: inventory of nodes with validity
-- grain: one row per node and change
-- units: none
-- params: none
CREATE TABLE node_history (
    node_id VARCHAR NOT NULL,
    valid_from_utc TIMESTAMP NOT NULL,
    hostname VARCHAR,
    rack VARCHAR,
    cluster VARCHAR,
    agent_version VARCHAR,
    PRIMARY KEY (node_id, valid_from_utc)
);
