-- purpose: which state of the samples each result reflects
-- grain: one row per analysis and UTC hour
-- units: duration in milliseconds
-- params: none
CREATE TABLE analysis_run (
    analysis VARCHAR NOT NULL,
    hour_utc TIMESTAMP NOT NULL,
    change_seq BIGINT NOT NULL,
    finished_utc TIMESTAMP NOT NULL,
    settings_hash VARCHAR NOT NULL,
    duration_ms BIGINT NOT NULL,
    PRIMARY KEY (analysis, hour_utc)
);
