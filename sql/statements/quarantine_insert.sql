-- purpose: keep refused rows, from the registered table refused_in
-- grain: one row per refused row, or per heap of them that was only counted
-- units: content is JSON
-- params: none
INSERT INTO quarantine BY NAME
SELECT * FROM refused_in;
