-- purpose: add the raw runs that are not there yet; what differed was taken away before
-- grain: one row per run
-- units: as in state_run
-- params: none
INSERT INTO state_run BY NAME
SELECT * FROM new_state_run;
