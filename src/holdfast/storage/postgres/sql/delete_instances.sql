-- Every row of instances that are deleted, in one transaction (R32). Numbers are never reused, so no late change finds
-- them (G1). One statement, so that a slice is one round trip.
WITH of_activity_events AS (
    DELETE FROM activity_events WHERE activity_exec_id = ANY (ARRAY(SELECT exec_id FROM offers WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))))
), of_offers AS (
    DELETE FROM offers WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_history AS (
    DELETE FROM history WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_inbox AS (
    DELETE FROM inbox WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_received AS (
    DELETE FROM received WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_timers AS (
    DELETE FROM timers WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_attempts AS (
    DELETE FROM attempts WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_payloads AS (
    DELETE FROM payloads WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_kept AS (
    DELETE FROM kept WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_attributes AS (
    DELETE FROM attributes WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_updates AS (
    DELETE FROM updates WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_closings AS (
    DELETE FROM closings WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_questions AS (
    DELETE FROM questions WHERE taken_by IS NULL AND number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
), of_requests AS (
    DELETE FROM requests WHERE instance_number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
)
DELETE FROM instances WHERE number = ANY (ARRAY(SELECT value::bigint FROM json_each(?1)))
