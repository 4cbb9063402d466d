-- Every row of instances that are deleted, in one transaction (R32). Numbers are never reused, so no late change finds
-- them (G1). The numbers are bound once for each statement.
DELETE FROM activity_events WHERE activity_exec_id IN (SELECT exec_id FROM offers WHERE number IN (SELECT value FROM json_each(?)));
DELETE FROM offers WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM history WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM inbox WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM received WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM timers WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM attempts WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM payloads WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM kept WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM attributes WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM updates WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM closings WHERE number IN (SELECT value FROM json_each(?));
DELETE FROM questions WHERE taken_by IS NULL AND number IN (SELECT value FROM json_each(?));
DELETE FROM requests WHERE instance_number IN (SELECT value FROM json_each(?));
DELETE FROM instances WHERE number IN (SELECT value FROM json_each(?));
