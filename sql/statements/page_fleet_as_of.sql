-- purpose: the instant that a page speaks of: the newest sample of any GPU
-- grain: one row
-- units: UTC
-- param: from_utc TIMESTAMP | look no further back
-- param: to_utc TIMESTAMP | later stamps come from clocks that run ahead and are ignored
SELECT max(ts_utc) AS as_of_utc
FROM gpu_sample
WHERE ts_utc >= $from_utc AND ts_utc <= $to_utc;
