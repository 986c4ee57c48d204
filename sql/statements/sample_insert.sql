-- purpose: put the registered table arrived into a live table
-- grain: one row per sample
-- units: in the column names
-- params: none
INSERT INTO /* table */ BY NAME
SELECT * FROM arrived;
