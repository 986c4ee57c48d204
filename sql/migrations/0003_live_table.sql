-- purpose: tables that hold hours not yet sealed
-- grain: one row per live table; at most one open per hour
-- units: revision counts changes of a frozen table
-- params: none
CREATE TABLE live_table (
    name VARCHAR PRIMARY KEY,
    hour_utc TIMESTAMP NOT NULL,
    generation INTEGER NOT NULL,
    frozen BOOLEAN NOT NULL,
    revision BIGINT NOT NULL
);
