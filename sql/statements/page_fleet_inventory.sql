-- purpose: how many nodes and devices are known while no sample has come yet
-- grain: one row
-- units: none
-- params: none
SELECT
    (SELECT count(*) FROM node) AS nodes,
    (SELECT count(*) FROM device WHERE parent_uuid IS NULL) AS gpus;
