-- purpose: note holders of GPUs, from the registered table owner_in
-- grain: one row per GPU that is new or moved
-- units: none
-- params: none
INSERT INTO gpu_owner BY NAME
SELECT * FROM owner_in;
