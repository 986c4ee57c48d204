-- purpose: the first UTC hour that a query counts: the one asked for, else the current hour and the
--     23 before it, as on the pages; the current hour is the newest that has samples
-- grain: scalar
-- units: UTC
-- param: asked_utc TIMESTAMP | NULL is not asked for; the hour it lies in counts as a whole
CREATE OR REPLACE MACRO window_from(asked_utc) AS
coalesce(date_trunc('hour', CAST(asked_utc AS TIMESTAMP)), hours_back(24));
