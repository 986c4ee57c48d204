-- purpose: time and energy in each state, as analysed so far
-- grain: one row per state; whole devices only
-- units: obs_ms and energy_obs_ms milliseconds of GPU time, energy_uj microjoule
-- param: from_utc TIMESTAMP | first UTC hour counted
-- param: as_of_utc TIMESTAMP | newest stamp of the page
SELECT
    state,
    sum(obs_ms)::BIGINT AS obs_ms,
    coalesce(sum(energy_uj), 0)::DOUBLE AS energy_uj,
    sum(energy_obs_ms)::BIGINT AS energy_obs_ms,
    max(last_ts_utc) AS analysed_utc
FROM state_energy
WHERE hour_utc >= $from_utc AND hour_utc <= $as_of_utc
GROUP BY state
ORDER BY state;
