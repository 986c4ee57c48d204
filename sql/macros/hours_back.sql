-- purpose: the first of so many UTC hours, the last of which is the newest that has samples
-- grain: scalar
-- units: UTC
-- param: hours INTEGER
CREATE OR REPLACE MACRO hours_back(hours) AS
(SELECT max(hour_change.hour_utc) FROM hour_change WHERE hour_change.rows > 0)
- to_hours(CAST(hours AS INTEGER) - 1);
