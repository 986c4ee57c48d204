-- purpose: the first live second of each node of a demo
-- grain: one row a node that is live
-- units: first_us in µs since 1970, UTC
-- param: epoch BIGINT  epoch of the history; live agents have a higher one
SELECT node_id, epoch_us(min(ts_utc)) AS first_us
FROM gpu_sample
WHERE epoch > $epoch
GROUP BY node_id
