-- purpose: where watts did no work: execution-idle, and held but empty, the most energy first
-- grain: one row per job and kind of waste; without a job, one row per node
-- units: waste_h hours of GPU time, waste_kwh kilowatt hours, power_w mean watt a GPU; coverage 0-1
--     (coverage: time of the job, or of the node, seen over time expected; energy_coverage: time with
--     an energy over time seen, of the waste)
-- param: from_utc TIMESTAMP = NULL | first UTC hour counted; NULL is 23 before the current one
-- param: to_utc TIMESTAMP = NULL | first UTC hour not counted; NULL is open
-- param: rows INTEGER = 20 >= 1 | how many
WITH waste AS (
    SELECT
        i.job_key,
        CASE WHEN i.job_key IS NULL THEN i.node_id END AS node_id,
        i.state,
        count(DISTINCT i.gpu_uuid) AS gpus,
        count(DISTINCT i.node_id) AS nodes,
        sum(i.obs_ms) AS obs_ms,
        sum(i.energy_obs_ms) AS energy_obs_ms,
        sum(i.energy_uj) AS energy_uj
    FROM state_energy AS i
    WHERE (i.state = 'execution_idle' OR (i.state = 'deep_idle' AND i.job_key IS NOT NULL))
      AND i.hour_utc >= window_from($from_utc)
      AND i.hour_utc < window_to($to_utc)
    GROUP BY ALL
)

SELECT
    waste.job_key,
    job.user_name,
    waste.node_id,
    CASE WHEN waste.state = 'deep_idle' THEN 'held_empty' ELSE waste.state END AS waste,
    waste.gpus,
    waste.obs_ms / 3.6e6 AS waste_h,
    waste.energy_uj::DOUBLE / 3.6e12 AS waste_kwh,
    waste.energy_uj::DOUBLE / 1e3 / nullif(waste.energy_obs_ms, 0) AS power_w,
    waste.energy_obs_ms / waste.obs_ms AS energy_coverage,
    coalesce(
        of_job.obs_ms / nullif(of_job.expected_ms, 0), of_node.obs_ms / nullif(of_node.expected_ms, 0)
    ) AS coverage,
    waste.nodes
FROM waste
LEFT JOIN job ON waste.job_key = job.job_key
LEFT JOIN state_totals('job', window_from($from_utc), window_to($to_utc)) AS of_job
    ON waste.job_key = of_job.subject
LEFT JOIN state_totals('node', window_from($from_utc), window_to($to_utc)) AS of_node
    ON waste.node_id = of_node.subject
ORDER BY waste_kwh DESC NULLS LAST, waste_h DESC, waste.job_key, waste.node_id
LIMIT CAST($rows AS BIGINT);
