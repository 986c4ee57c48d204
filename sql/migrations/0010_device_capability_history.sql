-- purpose: what each device can give at all, with validity
-- grain: one row per GPU, column and change
-- units: none
-- params: none
CREATE TABLE device_capability_history (
    gpu_uuid VARCHAR NOT NULL,
    valid_from_utc TIMESTAMP NOT NULL,
    column_name VARCHAR NOT NULL,
    supported BOOLEAN,
    reason VARCHAR,
    PRIMARY KEY (gpu_uuid, column_name, valid_from_utc)
);
