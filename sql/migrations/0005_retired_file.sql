-- purpose: segment files that were replaced and wait to be unlinked
-- grain: one row per file
-- units: none
-- params: none
CREATE TABLE retired_file (
    path VARCHAR PRIMARY KEY,
    retired_utc TIMESTAMP NOT NULL
);
