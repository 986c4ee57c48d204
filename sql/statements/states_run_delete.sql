-- purpose: take away raw runs of an hour that are no longer so
-- grain: one row per run
-- units: as in state_run
-- param: hour_utc TIMESTAMP
DELETE FROM state_run
USING gone_state_run AS gone
WHERE state_run.hour_utc = $hour_utc
  AND state_run.gpu_uuid = gone.gpu_uuid
  AND state_run.first_ts_utc = gone.first_ts_utc;
