-- purpose: what each node's GPUs spent in each state
-- grain: one row per node
-- units: *_s seconds of GPU time, *_j joule, *_kwh kilowatt hours; shares and coverage 0-1
--     (coverage: time seen over time expected, which is every second since the device is known,
--     silent ones too, up to the newest analysed one; energy_coverage: time with
--     an energy over time seen; time_coverage: the same as coverage)
-- params: none
CREATE OR REPLACE VIEW energy_by_node AS
SELECT
    subject AS node_id,
    * EXCLUDE (subject, node_id)
FROM energy_totals('node');
