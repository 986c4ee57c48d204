-- purpose: which hours changed, in which order, for whoever derives results from them
-- grain: one row per UTC hour that ever had rows
-- units: rows counts samples present
-- params: none
CREATE TABLE hour_change (
    hour_utc TIMESTAMP PRIMARY KEY,
    change_seq BIGINT NOT NULL,
    rows BIGINT NOT NULL
);
