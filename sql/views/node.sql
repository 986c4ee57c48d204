-- purpose: each node as last reported
-- grain: one row per node
-- units: none
-- params: none
CREATE OR REPLACE VIEW node AS
SELECT
    node_id,
    valid_from_utc,
    hostname,
    rack,
    cluster,
    agent_version
FROM node_history
QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY valid_from_utc DESC) = 1;
