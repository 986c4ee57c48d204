-- purpose: which migrations this warehouse has seen
-- grain: one row per migration
-- units: none
-- params: none
CREATE TABLE IF NOT EXISTS schema_migration (
    version INTEGER PRIMARY KEY,
    name VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    applied_utc TIMESTAMP NOT NULL
);
