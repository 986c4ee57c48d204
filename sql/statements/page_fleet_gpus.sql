-- purpose: every device of the inventory with its newest sample, its place and who holds it
--     (of several holders the one that the analysis of states takes: statements/states_allocations)
-- grain: one row per device; MIG instances stand under their device
-- units: mW; NULL where the device gave no sample since from_utc, and where its newest sample has none
-- param: as_of_utc TIMESTAMP | newest stamp of the page
-- param: from_utc TIMESTAMP | a device silent since then has no data
WITH latest AS (
    SELECT
        gpu_uuid,
        arg_max(
            struct_pack(
                node_id := node_id,
                ts_utc := ts_utc,
                power_mw := coalesce(power_avg_mw, power_inst_mw),
                power_limit_mw := power_limit_mw
            ),
            ts_utc
        ) AS row
    FROM gpu_sample
    WHERE ts_utc > $from_utc AND ts_utc <= $as_of_utc AND parent_uuid IS NULL
    GROUP BY gpu_uuid
),

newest AS (
    SELECT
        gpu_uuid,
        unnest(row)
    FROM latest
),

holder AS (
    SELECT
        gpu_uuid,
        job_key
    FROM allocation
    WHERE
        start_utc <= $as_of_utc - INTERVAL 500 MILLISECOND
        AND (end_utc IS NULL OR end_utc > $as_of_utc - INTERVAL 500 MILLISECOND)
    QUALIFY
        row_number() OVER (
            PARTITION BY gpu_uuid ORDER BY share DESC NULLS LAST, job_key ASC, start_utc DESC
        ) = 1
),

first_known AS (
    SELECT
        gpu_uuid,
        min(valid_from_utc) AS first_utc
    FROM device_history
    GROUP BY gpu_uuid
),

known AS (
    SELECT * FROM device WHERE parent_uuid IS NULL
)

SELECT
    coalesce(known.gpu_uuid, newest.gpu_uuid) AS gpu_uuid,
    coalesce(known.node_id, newest.node_id) AS node_id,
    coalesce(node.hostname, '') AS hostname,
    coalesce(node.rack, '') AS rack,
    known.gpu_index,
    coalesce(known.model, '') AS model,
    first_known.first_utc,
    newest.ts_utc,
    newest.power_mw,
    coalesce(newest.power_limit_mw, known.power_limit_default_mw) AS power_limit_mw,
    holder.job_key,
    job.raw_id,
    job.job_name,
    job.user_name
FROM known
FULL OUTER JOIN newest ON known.gpu_uuid = newest.gpu_uuid
LEFT JOIN first_known ON known.gpu_uuid = first_known.gpu_uuid
LEFT JOIN node ON coalesce(known.node_id, newest.node_id) = node.node_id
LEFT JOIN holder ON coalesce(known.gpu_uuid, newest.gpu_uuid) = holder.gpu_uuid
LEFT JOIN job ON holder.job_key = job.job_key
ORDER BY rack, node_id, gpu_index, gpu_uuid;
