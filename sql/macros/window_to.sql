-- purpose: the first UTC hour that a query does not count any more
-- grain: scalar
-- units: UTC
-- param: asked_utc TIMESTAMP | NULL is open; the hour it lies in counts as a whole
CREATE OR REPLACE MACRO window_to(asked_utc) AS
coalesce(
    date_trunc('hour', CAST(asked_utc AS TIMESTAMP) + INTERVAL '59 minutes 59.999999 seconds'),
    TIMESTAMP '9999-01-01'
);
