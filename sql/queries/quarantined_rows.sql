-- purpose: rows that could not be true, by node and reason
-- grain: one row per node, table and reason
-- units: rows
-- params: none
SELECT
    node_id,
    table_name,
    reason,
    sum(row_count)::BIGINT AS rows,
    max(received_utc) AS newest_utc
FROM quarantine
GROUP BY node_id, table_name, reason
ORDER BY rows DESC, node_id, table_name, reason;
