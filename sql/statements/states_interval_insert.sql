-- purpose: add the pieces that take the place of those taken away
-- grain: one row per piece
-- units: as in state_interval
-- params: none
INSERT INTO state_interval BY NAME
SELECT * FROM new_state_interval;
