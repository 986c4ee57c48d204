-- purpose: pieces of power states with their energy over all sources; whole devices only
-- grain: one row per piece; MIG instances are left out, their device holds time and energy
-- units: energy_uj microjoule, NULL where no row of the piece had an energy
-- params: none
CREATE OR REPLACE VIEW state_energy AS
SELECT
    i.*,
    CASE WHEN i.energy_obs_ms > 0
        THEN
            coalesce(i.energy_counter_uj, 0)
            + coalesce(i.energy_power_avg_uj, 0)
            + coalesce(i.energy_power_inst_uj, 0)
    END AS energy_uj
FROM state_interval AS i
ANTI JOIN (SELECT gpu_uuid FROM device WHERE parent_uuid IS NOT NULL) AS instance
    ON i.gpu_uuid = instance.gpu_uuid;
