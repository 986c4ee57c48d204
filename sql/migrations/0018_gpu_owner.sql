-- purpose: which node a GPU belongs to, so that no node can write the rows of another's GPU
-- grain: one row per GPU and node that held it; a further row tells that the GPU moved
-- units: from_utc is 1970 for the first holder; rows of a later one must be newer than from_utc
-- params: none
CREATE TABLE gpu_owner (
    gpu_uuid VARCHAR NOT NULL,
    from_utc TIMESTAMP NOT NULL,
    node_id VARCHAR NOT NULL,
    noted_utc TIMESTAMP NOT NULL,
    PRIMARY KEY (gpu_uuid, from_utc)
);
