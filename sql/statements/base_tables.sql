-- purpose: names of all base tables
-- grain: one row per table
-- units: none
-- params: none
SELECT table_name
FROM duckdb_tables()
WHERE NOT internal AND NOT temporary AND database_name = current_database()
ORDER BY table_name;
