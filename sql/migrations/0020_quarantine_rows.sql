-- purpose: how many refused rows a row of quarantine stands for, where most were only counted
-- grain: none
-- units: rows
-- params: none
ALTER TABLE quarantine ADD COLUMN row_count BIGINT DEFAULT 1;
