-- Written by tools/generate_statements.py: the statements of the PostgreSQL store in the schema shop.

-- active_worker
SELECT 1 FROM "shop".workers WHERE key = $1 AND state = 'ACTIVE' FOR KEY SHARE;

-- advance_clock
UPDATE "shop".clock SET now_ms = $1 WHERE ctid = ANY (ARRAY(SELECT ctid FROM "shop".clock WHERE now_ms < $1::bigint - $2::bigint FOR UPDATE SKIP LOCKED));

-- answer_query
UPDATE "shop".questions SET answer = $3 WHERE id = $1 AND taken_by = $2 AND answer IS NULL;

-- answer_update
UPDATE "shop".updates SET state = $3, answer = $4, expires_at_ms = $5 WHERE number = $1 AND id = $2 AND answer IS NULL;

-- any_active_worker
SELECT 1 FROM "shop".workers WHERE state = 'ACTIVE' LIMIT 1;

-- append_history
INSERT INTO "shop".history (number, execution, turn, events) VALUES ($1, $2, $3, $4);

-- audit_attempts
SELECT {raw_attempt_columns} FROM "shop".attempts ORDER BY number, execution, activity, dimension, attempt;

-- audit_attributes
SELECT number, name, position, type, value, created_at_ms FROM "shop".attributes ORDER BY number, name, position;

-- audit_children
SELECT parent, parent_execution, parent_step, number, id, workflow, state, outcome, parent_close, ( state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'TERMINATED') AND ( EXISTS (SELECT 1 FROM "shop".inbox WHERE inbox.number = instances.number AND position('"cancel_requested"'::bytea IN event) > 0) OR EXISTS (SELECT 1 FROM "shop".history WHERE history.number = instances.number AND position('"cancel_requested"'::bytea IN events) > 0) ) )::int FROM "shop".instances WHERE parent IS NOT NULL ORDER BY parent, parent_execution, parent_step;

-- audit_closings
SELECT number, execution FROM "shop".closings ORDER BY number, execution;

-- audit_count
SELECT count(*) FROM "shop".instances;

-- audit_events
SELECT row, state, CASE WHEN refusal IS NULL THEN 0 ELSE 1 END, CASE WHEN handled_at_ms IS NULL THEN 0 ELSE 1 END FROM "shop".activity_events WHERE state NOT IN ('NEW', 'APPLIED', 'WAITING', 'DUPLICATE', 'REFUSED') OR (state IN ('NEW', 'WAITING')) <> (handled_at_ms IS NULL) OR (state IN ('WAITING', 'DUPLICATE', 'REFUSED')) <> (refusal IS NOT NULL) ORDER BY row;

-- audit_history
SELECT number, execution, turn, events FROM "shop".history ORDER BY number, execution, turn;

-- audit_id
SELECT id FROM "shop".instances WHERE number = $1;

-- audit_ids
SELECT id, count(*) FILTER (WHERE superseded_at_ms IS NULL), max(number) FROM "shop".instances GROUP BY id HAVING count(*) FILTER (WHERE superseded_at_ms IS NULL) <> 1 OR max(number) <> max(number) FILTER (WHERE superseded_at_ms IS NULL);

-- audit_inbox
SELECT number, execution, row, event FROM "shop".inbox ORDER BY number, row;

-- audit_instances
SELECT {raw_instance_columns} FROM "shop".instances ORDER BY number;

-- audit_offers
SELECT {raw_offer_columns} FROM "shop".offers ORDER BY number, execution, activity, dimension, attempt, entry;

-- audit_orphans
SELECT 'payloads', number, count(*) FROM "shop".payloads WHERE NOT EXISTS (SELECT 1 FROM "shop".instances WHERE instances.number = payloads.number) GROUP BY number UNION ALL SELECT 'kept', number, count(*) FROM "shop".kept WHERE NOT EXISTS (SELECT 1 FROM "shop".instances WHERE instances.number = kept.number) GROUP BY number UNION ALL SELECT 'received', number, count(*) FROM "shop".received WHERE NOT EXISTS (SELECT 1 FROM "shop".instances WHERE instances.number = received.number) GROUP BY number;

-- audit_requests
SELECT row, state, CASE WHEN refusal IS NULL THEN 0 ELSE 1 END, CASE WHEN handled_at_ms IS NULL THEN 0 ELSE 1 END, instance_number, (SELECT count(*) FROM "shop".instances WHERE instances.number = requests.instance_number) FROM "shop".requests WHERE state NOT IN ('NEW', 'ACCEPTED', 'REFUSED', 'TRACE') OR (state = 'NEW') <> (handled_at_ms IS NULL) OR (state = 'REFUSED') <> (refusal IS NOT NULL) OR (state = 'ACCEPTED' AND instance_number IS NULL) OR (instance_number IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "shop".instances WHERE instances.number = requests.instance_number)) ORDER BY row;

-- audit_stranded
SELECT activity_events.row, offers.name, COALESCE(offers.withdrawn_at_ms, attempts.closed_at_ms, 0) FROM "shop".activity_events LEFT JOIN "shop".offers ON offers.exec_id = activity_events.activity_exec_id LEFT JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE activity_events.state = 'WAITING' AND (offers.withdrawn_at_ms IS NOT NULL OR attempts.closed_at_ms IS NOT NULL OR attempts.number IS NULL) ORDER BY activity_events.row;

-- audit_timers
SELECT number, execution, timer, due_at_ms FROM "shop".timers ORDER BY number, execution, timer;

-- audit_updates
SELECT number, id, state, answer FROM "shop".updates ORDER BY number, id;

-- audit_workers
SELECT {raw_worker_columns} FROM "shop".workers ORDER BY key;

-- begin_commit
INSERT INTO "shop".commits (id, part, at_ms) SELECT $1::bigint, $2::bigint, $3::bigint WHERE NOT EXISTS (SELECT 1 FROM "shop".commits WHERE id = $1::bigint AND NOT is_void) ON CONFLICT (id, part) DO NOTHING;

-- begin_group
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true);

-- begin_relaxed
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true), set_config('synchronous_commit', 'off', true);

-- block_instance
UPDATE "shop".instances SET state = 'BLOCKED', blocked = $1, owner = NULL, claimable_at_ms = NULL, blocked_by = CASE WHEN COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array($2::text) THEN blocked_by ELSE (COALESCE(blocked_by, '[]')::jsonb || jsonb_build_array($2::text))::text END WHERE number = $3 AND fence = $4 AND ((owner = $5 AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED')) OR (state = 'BLOCKED' AND blocked = $1));

-- blocked_elsewhere
SELECT 1 FROM (SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version FROM jsonb_array_elements($1::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL UNION SELECT name, version FROM "shop".flows WHERE name IN (SELECT pair.value ->> 0 FROM jsonb_array_elements($1::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL)) AS keys CROSS JOIN LATERAL ( SELECT 1 FROM "shop".instances WHERE state = 'BLOCKED' AND workflow = keys.workflow AND version = keys.version AND NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array($2::text) OFFSET 0 ) AS found LIMIT 1;

-- blocked_instances
SELECT number, id, workflow, version, substr(blocked, 1, 8000), blocked_by, created_at_ms FROM "shop".instances WHERE state = 'BLOCKED' AND number > $1 ORDER BY number LIMIT $2;

-- cancel_activities
UPDATE "shop".attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST($1 AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = $2 AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');

-- cancel_activity
UPDATE "shop".attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST($1 AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = $2 AND execution = $3 AND activity = $4 AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');

-- claim_blocked
WITH candidates AS MATERIALIZED ( SELECT found.number FROM (SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version FROM jsonb_array_elements($2::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL UNION SELECT name, version FROM "shop".flows WHERE name IN (SELECT pair.value ->> 0 FROM jsonb_array_elements($2::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL)) AS keys CROSS JOIN LATERAL ( SELECT number FROM "shop".instances WHERE state = 'BLOCKED' AND workflow = keys.workflow AND version = keys.version AND CASE $3::text WHEN '' THEN losses < $5 ELSE NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array($3::text) END OFFSET 0 ) AS found ORDER BY found.number LIMIT $4 ) UPDATE "shop".instances SET owner = $1, fence = fence + 1, state = 'RUNNING', blocked = NULL, losses = 0 WHERE number = ANY (ARRAY( SELECT number FROM "shop".instances WHERE number = ANY (ARRAY(SELECT number FROM candidates)) AND state = 'BLOCKED' AND CASE $3::text WHEN '' THEN losses < $5 ELSE NOT COALESCE(blocked_by, '[]')::jsonb @> jsonb_build_array($3::text) END FOR NO KEY UPDATE SKIP LOCKED )) RETURNING {instance_columns};

-- claim_instances
WITH keys AS MATERIALIZED ( SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version FROM jsonb_array_elements($3::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL UNION SELECT name, version FROM "shop".flows WHERE name IN (SELECT pair.value ->> 0 FROM jsonb_array_elements($3::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL) ), suspect AS MATERIALIZED ( SELECT number FROM "shop".instances WHERE losses >= 2 AND owner IS NULL AND $2 >= claimable_at_ms AND (workflow, version) IN (SELECT keys.workflow, keys.version FROM keys) AND NOT EXISTS (SELECT 1 FROM "shop".instances AS tried WHERE tried.losses >= 2 AND tried.owner = $1) LIMIT LEAST(1, $4::bigint) FOR NO KEY UPDATE SKIP LOCKED ), room AS MATERIALIZED ( SELECT $4::bigint - count(*) AS places FROM suspect ), due AS MATERIALIZED ( SELECT keys.workflow, keys.version, waiting.number FROM keys CROSS JOIN LATERAL ( SELECT number, claimable_at_ms, row_number() OVER (ORDER BY claimable_at_ms) AS place FROM "shop".instances WHERE workflow = keys.workflow AND version = keys.version AND claimable_at_ms <= $2 AND owner IS NULL AND losses < 2 ORDER BY claimable_at_ms LIMIT $4 ) AS waiting ORDER BY waiting.claimable_at_ms, waiting.place LIMIT (SELECT places FROM room) ), taken AS MATERIALIZED ( SELECT number FROM "shop".instances WHERE number = ANY (ARRAY(SELECT number FROM due)) AND claimable_at_ms <= $2 AND owner IS NULL AND losses < 2 FOR NO KEY UPDATE SKIP LOCKED ), missing AS MATERIALIZED ( SELECT due.workflow, due.version, count(*) AS share FROM due WHERE due.number NOT IN (SELECT number FROM taken) GROUP BY due.workflow, due.version ), further AS MATERIALIZED ( SELECT later.number FROM missing CROSS JOIN LATERAL ( SELECT number FROM "shop".instances WHERE workflow = missing.workflow AND version = missing.version AND claimable_at_ms <= $2 AND owner IS NULL AND losses < 2 AND number <> ALL (ARRAY(SELECT number FROM due)) ORDER BY claimable_at_ms LIMIT missing.share FOR NO KEY UPDATE SKIP LOCKED ) AS later ) UPDATE "shop".instances SET owner = $1, fence = fence + 1, claimable_at_ms = NULL WHERE number = ANY (ARRAY( SELECT number FROM suspect UNION ALL SELECT number FROM taken UNION ALL SELECT number FROM further )) RETURNING {instance_columns};

-- claim_offer
UPDATE "shop".offers SET claim = $1 WHERE exec_id = $2;

-- claim_queries
UPDATE "shop".questions SET taken_by = $1 WHERE id = ANY (ARRAY( SELECT questions.id FROM "shop".questions JOIN "shop".instances ON instances.number = questions.number WHERE questions.taken_by IS NULL AND questions.expires_at_ms > $2 AND instances.turn > 0 AND (instances.owner = $1 OR (instances.owner IS NULL AND (instances.workflow, instances.version) IN ( SELECT keys.workflow, keys.version FROM (SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version FROM jsonb_array_elements($3::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL UNION SELECT name, version FROM "shop".flows WHERE name IN (SELECT pair.value ->> 0 FROM jsonb_array_elements($3::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL)) AS keys ))) LIMIT $4 FOR UPDATE OF questions SKIP LOCKED )) RETURNING id, number, name, input;

-- clear_timers
DELETE FROM "shop".timers WHERE number = $1;

-- close_instance
UPDATE "shop".instances SET state = $1, outcome = $2, closed_at_ms = $3, owner = NULL, claimable_at_ms = NULL WHERE number = $4;

-- commit_flow_turn
UPDATE "shop".instances SET turn = $1, stamp_ms = $2, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END, collation_key = $3 WHERE number = $4 AND fence = $5 AND owner = $6 AND turn = $7;

-- commit_turn
UPDATE "shop".instances SET turn = $1, stamp_ms = $2, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END WHERE number = $3 AND fence = $4 AND owner = $5 AND turn = $6;

-- continue_instance
UPDATE "shop".instances SET execution = $1, turn = 0, fence = fence + 1, input = $2, owner = $3, claimable_at_ms = $4 WHERE number = $5 AND execution = $6;

-- continued_instances
SELECT number, workflow FROM ( SELECT number, workflow, execution FROM "shop".instances WHERE owner IS NOT NULL UNION ALL SELECT number, workflow, execution FROM "shop".instances WHERE owner IS NULL AND closed_at_ms IS NULL ) AS continued WHERE execution > 1 AND number > $1 AND EXISTS (SELECT 1 FROM "shop".history WHERE history.number = continued.number AND history.execution < continued.execution) ORDER BY number LIMIT $2;

-- count_blocked_by
SELECT value, count(*) FROM "shop".instances, jsonb_array_elements_text((blocked_by)::jsonb) AS json_each(value) WHERE state = 'BLOCKED' GROUP BY value ORDER BY 2 DESC, 1 LIMIT $1;

-- count_children
SELECT state, count(*) FROM "shop".instances WHERE parent = $1 GROUP BY state;

-- count_closed
SELECT count(*) FROM (SELECT 1 FROM "shop".instances WHERE closed_at_ms IS NOT NULL LIMIT $1) AS closed;

-- count_earlier
SELECT count(*) FROM "shop".instances WHERE id = $1 AND superseded_at_ms IS NOT NULL;

-- count_event
UPDATE "shop".instances SET mail = mail + 1, claimable_at_ms = CASE WHEN $1 AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED') THEN 0 ELSE claimable_at_ms END WHERE number = $2;

-- count_instances
SELECT count(*) FROM (SELECT 1 FROM "shop".instances LIMIT $1) AS found;

-- count_lost_owner
UPDATE "shop".instances SET losses = losses + 1 WHERE number = $1 AND owner = $2;

-- count_new_requests
SELECT substr(workflow, 1, 1024), count(*) FROM "shop".requests WHERE state = 'NEW' AND kind = 'start' AND workflow IS NOT NULL AND manual = false GROUP BY workflow ORDER BY workflow LIMIT $1;

-- count_open
SELECT workflow, state, CAST(sum(found) AS BIGINT) AS instances FROM ( SELECT workflow, state, count(*) AS found FROM "shop".instances WHERE owner IS NOT NULL GROUP BY workflow, state UNION ALL SELECT workflow, state, count(*) AS found FROM "shop".instances WHERE owner IS NULL AND closed_at_ms IS NULL GROUP BY workflow, state ) AS counted GROUP BY workflow, state ORDER BY instances DESC, workflow, state LIMIT $1;

-- count_open_offers
SELECT attempts.queue, count(*) FROM "shop".attempts JOIN "shop".offers ON offers.number = attempts.number AND offers.execution = attempts.execution AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL WHERE attempts.state = 'READY' AND attempts.available_at_ms <= $1 GROUP BY attempts.queue;

-- count_open_updates
SELECT count(*) FROM (SELECT 1 FROM "shop".updates WHERE number = $1 AND answer IS NULL LIMIT $2) AS found;

-- count_restored
SELECT (SELECT count(*) FROM "shop".instances WHERE closed_at_ms IS NULL), ( SELECT count(*) FROM "shop".offers JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE offers.withdrawn_at_ms IS NULL AND attempts.closed_at_ms IS NULL );

-- count_versions
SELECT workflow, version, owner, count(*) AS instances FROM "shop".instances WHERE owner IS NOT NULL GROUP BY workflow, version, owner UNION ALL SELECT workflow, version, NULL, count(*) FROM "shop".instances WHERE owner IS NULL AND closed_at_ms IS NULL GROUP BY workflow, version ORDER BY 4 DESC LIMIT $1;

-- current_offer
SELECT exec_id, entry FROM "shop".offers WHERE number = $1 AND execution = $2 AND activity = $3 AND dimension = $4 AND attempt = $5 AND withdrawn_at_ms IS NULL ORDER BY entry DESC LIMIT 1 FOR NO KEY UPDATE;

-- dead_owners
WITH RECURSIVE owners (owner) AS ( (SELECT owner FROM "shop".instances WHERE owner IS NOT NULL ORDER BY owner LIMIT 1) UNION ALL SELECT (SELECT later.owner FROM "shop".instances AS later WHERE later.owner > owners.owner ORDER BY later.owner LIMIT 1) FROM owners WHERE owners.owner IS NOT NULL ), executors (owner) AS ( (SELECT owner FROM "shop".attempts WHERE owner IS NOT NULL AND closed_at_ms IS NULL ORDER BY owner LIMIT 1) UNION ALL SELECT ( SELECT later.owner FROM "shop".attempts AS later WHERE later.owner > executors.owner AND later.closed_at_ms IS NULL ORDER BY later.owner LIMIT 1 ) FROM executors WHERE executors.owner IS NOT NULL ) SELECT owner FROM (SELECT owner FROM owners UNION SELECT owner FROM executors) AS holders WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "shop".workers WHERE key = owner AND state = 'ACTIVE');

-- delete_asked_updates
DELETE FROM "shop".updates WHERE number = $1 AND answer IS NULL AND state = 'asked';

-- delete_attempts_before
DELETE FROM "shop".attempts WHERE number = $1 AND execution < $2;

-- delete_attribute
DELETE FROM "shop".attributes WHERE number = $1 AND name = $2;

-- delete_closed_events
DELETE FROM "shop".activity_events WHERE ctid = ANY (ARRAY( SELECT activity_events.ctid FROM "shop".offers JOIN "shop".instances ON instances.number = offers.number JOIN "shop".activity_events ON activity_events.activity_exec_id = offers.exec_id WHERE instances.closed_at_ms < $1 AND activity_events.inserted_at_ms < $1 LIMIT $2 FOR UPDATE OF activity_events SKIP LOCKED ));

-- delete_closed_offers
DELETE FROM "shop".offers WHERE exec_id = ANY (ARRAY( SELECT offers.exec_id FROM "shop".offers JOIN "shop".instances ON instances.number = offers.number WHERE instances.closed_at_ms < $1 AND NOT EXISTS (SELECT 1 FROM "shop".activity_events WHERE activity_exec_id = offers.exec_id) LIMIT $2 FOR UPDATE OF offers SKIP LOCKED ));

-- delete_closing
DELETE FROM "shop".closings WHERE number = $1 AND execution = $2;

-- delete_dead_workers
DELETE FROM "shop".workers WHERE key = ANY (ARRAY( SELECT key FROM "shop".workers WHERE state = 'INACTIVE' AND deadline_ms < $1 AND NOT EXISTS (SELECT 1 FROM "shop".instances WHERE owner = workers.key) AND NOT EXISTS (SELECT 1 FROM "shop".attempts WHERE owner = workers.key AND closed_at_ms IS NULL) LIMIT $2 FOR UPDATE SKIP LOCKED ));

-- delete_events_before
DELETE FROM "shop".activity_events WHERE activity_exec_id = ANY (ARRAY(SELECT exec_id FROM "shop".offers WHERE number = $1 AND execution < $2));

-- delete_expired_queries
DELETE FROM "shop".questions WHERE expires_at_ms <= $1;

-- delete_expired_updates
DELETE FROM "shop".updates WHERE expires_at_ms <= $1;

-- delete_history_before
DELETE FROM "shop".history WHERE number = $1 AND execution < $2;

-- delete_inbox
DELETE FROM "shop".inbox WHERE row = $1 AND number = $2;

-- delete_inbox_of_instance
DELETE FROM "shop".inbox WHERE number = $1;

-- delete_instances
WITH of_activity_events AS ( DELETE FROM "shop".activity_events WHERE activity_exec_id = ANY (ARRAY(SELECT exec_id FROM "shop".offers WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))))) ), of_offers AS ( DELETE FROM "shop".offers WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_history AS ( DELETE FROM "shop".history WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_inbox AS ( DELETE FROM "shop".inbox WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_received AS ( DELETE FROM "shop".received WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_timers AS ( DELETE FROM "shop".timers WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_attempts AS ( DELETE FROM "shop".attempts WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_payloads AS ( DELETE FROM "shop".payloads WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_kept AS ( DELETE FROM "shop".kept WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_attributes AS ( DELETE FROM "shop".attributes WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_updates AS ( DELETE FROM "shop".updates WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_closings AS ( DELETE FROM "shop".closings WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_questions AS ( DELETE FROM "shop".questions WHERE taken_by IS NULL AND number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ), of_requests AS ( DELETE FROM "shop".requests WHERE instance_number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ) DELETE FROM "shop".instances WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value)));

-- delete_offers_before
DELETE FROM "shop".offers WHERE number = $1 AND execution < $2;

-- delete_old_commits
DELETE FROM "shop".commits WHERE ctid = ANY (ARRAY(SELECT ctid FROM "shop".commits WHERE at_ms < $1 ORDER BY at_ms LIMIT $2 FOR UPDATE SKIP LOCKED));

-- delete_payload
DELETE FROM "shop".payloads WHERE number = $1 AND reference = $2;

-- delete_query
DELETE FROM "shop".questions WHERE id = $1;

-- delete_refused_events
DELETE FROM "shop".activity_events WHERE ctid = ANY (ARRAY( SELECT activity_events.ctid FROM "shop".activity_events WHERE state = 'REFUSED' AND handled_at_ms < $1 AND NOT EXISTS (SELECT 1 FROM "shop".offers WHERE exec_id = activity_exec_id) LIMIT $2 FOR UPDATE SKIP LOCKED ));

-- delete_refused_requests
DELETE FROM "shop".requests WHERE ctid = ANY (ARRAY( SELECT ctid FROM "shop".requests WHERE state = 'REFUSED' AND handled_at_ms < $1 LIMIT $2 FOR UPDATE SKIP LOCKED ));

-- delete_state_value
DELETE FROM "shop".kept WHERE number = $1 AND key = $2;

-- delete_timers_before
DELETE FROM "shop".timers WHERE number = $1 AND execution < $2;

-- end_timer
DELETE FROM "shop".timers WHERE number = $1 AND execution = $2 AND timer = $3;

-- enter_responses
UPDATE "shop".attempts SET ledger = ledger + $1, heartbeat_at_ms = $2, expires_at_ms = $3 WHERE number = $4 AND execution = $5 AND activity = $6 AND dimension = $7 AND attempt = $8 AND owner = $9 AND state = 'RUNNING' AND ledger / 1000000 = $10;

-- entered_responses
SELECT 1 FROM "shop".attempts WHERE number = $1 AND execution = $2 AND activity = $3 AND dimension = $4 AND attempt = $5 AND owner = $6 AND state IN ('RUNNING', 'CANCELLED_RUNNING') AND ledger / 1000000 = $7;

-- execution_starts
SELECT execution, events FROM "shop".history WHERE number = $1 AND turn = 0 ORDER BY execution;

-- exhausted_attempts
SELECT {attempt_columns} FROM "shop".attempts WHERE number = $1 AND (state || '') = 'READY' AND failure IS NOT NULL ORDER BY execution, activity, dimension, attempt FOR NO KEY UPDATE;

-- exit_pending
UPDATE "shop".attempts SET ledger = ledger + $1 WHERE number = $2 AND execution = $3 AND activity = $4 AND dimension = $5 AND attempt = $6 AND ledger % 1000000000000 / 1000000 - ledger % 1000000 >= $1;

-- exit_response
UPDATE "shop".attempts SET ledger = ledger + $1 - $7 WHERE number = $2 AND execution = $3 AND activity = $4 AND dimension = $5 AND attempt = $6 AND ledger / 1000000 = $7 / 1000000;

-- exit_responses
UPDATE "shop".attempts SET ledger = ledger + ledger % 1000000000000 / 1000000 - ledger % 1000000 - CASE WHEN state IN ('COMPLETED', 'FAILED') AND ledger / 1000000000000 % 10 = 9 AND NOT EXISTS ( SELECT 1 FROM "shop".attempts AS later WHERE later.number = attempts.number AND later.execution = attempts.execution AND later.activity = attempts.activity AND later.dimension = attempts.dimension AND later.attempt = attempts.attempt + 1) THEN 1000000000000 ELSE 0 END WHERE number = $1 AND ledger % 1000000000000 / 1000000 > ledger % 1000000;

-- expired_attempts
SELECT {attempt_columns}, (SELECT id FROM "shop".instances WHERE instances.number = attempts.number), (SELECT workflow FROM "shop".instances WHERE instances.number = attempts.number) FROM "shop".attempts WHERE expires_at_ms <= $1 ORDER BY expires_at_ms LIMIT $2;

-- expired_instances
SELECT number FROM "shop".instances WHERE expires_at_ms <= $1 AND closed_at_ms IS NULL ORDER BY expires_at_ms LIMIT $2;

-- find_child
SELECT {instance_columns} FROM "shop".instances WHERE parent = $1 AND parent_execution = $2 AND parent_step = $3 FOR NO KEY UPDATE;

-- find_commit
SELECT 1 FROM "shop".commits WHERE id = $1 AND NOT is_void LIMIT 1;

-- find_instance
SELECT {instance_columns} FROM "shop".instances WHERE id = $1 AND superseded_at_ms IS NULL;

-- find_instances
SELECT {instance_columns} FROM "shop".instances WHERE id = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) AND superseded_at_ms IS NULL;

-- find_part
SELECT 1 FROM "shop".commits WHERE id = $1 AND part = $2 AND NOT is_void;

-- forget_received
DELETE FROM "shop".received WHERE number = $1 AND id = $2;

-- handle_reports
UPDATE "shop".activity_events SET state = judged.value ->> 1, refusal = judged.value ->> 2, cancel_requested = CAST(judged.value ->> 3 AS BIGINT) <> 0, handled_at_ms = CASE WHEN judged.value ->> 1 IN ('NEW', 'WAITING') THEN NULL ELSE CAST($2 AS BIGINT) END FROM jsonb_array_elements($1::jsonb) AS judged(value) WHERE activity_events.row = CAST(judged.value ->> 0 AS BIGINT) AND activity_events.state IN ('NEW', 'WAITING') AND activity_events.row = ANY (ARRAY( SELECT CAST(each.value ->> 0 AS BIGINT) FROM jsonb_array_elements($1::jsonb) AS each(value) ));

-- handle_request
UPDATE "shop".requests SET state = $1, refusal = $2, instance_number = $3, handled_at_ms = $4 WHERE row = $5 AND state = 'NEW';

-- has_new_report
SELECT 1 FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'NEW' LIMIT 1;

-- has_new_rows
SELECT (SELECT row FROM "shop".requests WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL OR (SELECT row FROM "shop".activity_events WHERE state = 'NEW' ORDER BY row LIMIT 1) IS NOT NULL;

-- has_pending
SELECT EXISTS (SELECT 1 FROM "shop".inbox WHERE number = $1) OR EXISTS (SELECT 1 FROM "shop".timers WHERE number = $1) OR EXISTS (SELECT 1 FROM "shop".attempts WHERE number = $1 AND (closed_at_ms IS NULL OR ledger % 1000000000000 / 1000000 > ledger % 1000000));

-- has_read_all
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM "shop".inbox WHERE number = $1 AND row > $2 AND name IS NOT NULL);

-- hasten_silence
UPDATE "shop".attempts SET expires_at_ms = $1 WHERE number = $2 AND state = 'CANCELLED_RUNNING' AND owner IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $1);

-- heartbeat_attempt
UPDATE "shop".attempts SET heartbeat_at_ms = $1, details = COALESCE($2, details), expires_at_ms = $3 WHERE number = $4 AND execution = $5 AND activity = $6 AND dimension = $7 AND attempt = $8 AND owner = $9 AND state IN ('RUNNING', 'CANCELLED_RUNNING') RETURNING state, cancel_requested_at_ms;

-- hold_attempt
UPDATE "shop".attempts SET failure = $1 WHERE number = $2 AND execution = $3 AND activity = $4 AND dimension = $5 AND attempt = $6 AND state = 'READY';

-- hold_deadline
UPDATE "shop".instances SET expires_at_ms = NULL WHERE number = $1 AND state = 'PAUSED';

-- insert_attempt
INSERT INTO "shop".attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, expires_at_ms, failures, losses, details) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- insert_attribute
INSERT INTO "shop".attributes (number, name, position, type, value, created_at_ms) VALUES ($1, $2, $3, $4, $5, (SELECT created_at_ms FROM "shop".instances WHERE number = $1));

-- insert_closing
INSERT INTO "shop".closings (number, execution, how) SELECT $1, $2, $3 WHERE EXISTS ( SELECT 1 FROM "shop".instances WHERE parent = $1 AND parent_execution = $2 AND closed_at_ms IS NULL AND parent_close <> 'abandon' ) ON CONFLICT (number, execution) DO NOTHING;

-- insert_commit
INSERT INTO "shop".commits (id, part, at_ms) VALUES ($1, $2, $3) ON CONFLICT (id, part) DO NOTHING;

-- insert_inbox
INSERT INTO "shop".inbox (number, execution, stamp_ms, event) VALUES ($1, $2, $3, $4);

-- insert_message
INSERT INTO "shop".inbox (number, execution, stamp_ms, event, name) VALUES ($1, $2, $3, $4, $5);

-- insert_offer
INSERT INTO "shop".offers (exec_id, number, execution, activity, dimension, attempt, entry, name) VALUES (left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32), $1, $2, $3, $4, $5, $6, $7);

-- insert_payload
INSERT INTO "shop".payloads (reference, number, data) VALUES ($1, $2, $3) ON CONFLICT (number, reference) DO NOTHING;

-- insert_query
INSERT INTO "shop".questions (id, number, name, input, expires_at_ms) SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM "shop".questions) < $6 ON CONFLICT (id) DO NOTHING;

-- insert_received
INSERT INTO "shop".received (number, id) VALUES ($1, $2);

-- insert_report
INSERT INTO "shop".activity_events ( event_id, activity_exec_id, claim, transition, sequence, payload, error, source, sent_at, inserted_at_ms ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (event_id) DO NOTHING;

-- insert_request
INSERT INTO "shop".requests ( request_id, kind, workflow, instance_id, event_name, input, policy, start_at_ms, deadline_after_ms, manual, source, inserted_at_ms ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (request_id) DO NOTHING;

-- insert_update
INSERT INTO "shop".updates (number, id, state, asked) VALUES ($1, $2, 'asked', $3) ON CONFLICT (number, id) DO UPDATE SET state = 'asked', asked = $3, answer = NULL, expires_at_ms = NULL;

-- instance_gate
SELECT state, execution, owner FROM "shop".instances WHERE number = $1 FOR NO KEY UPDATE;

-- lift_numbers
SELECT setval('"shop".instance_numbers', nextval('"shop".instance_numbers') + $1::bigint);

-- list_children
SELECT {instance_columns}, (SELECT value FROM "shop".kept WHERE kept.number = instances.number AND kept.key = ''), (SELECT id FROM "shop".instances AS above WHERE above.number = instances.parent) FROM "shop".instances WHERE parent = $5 AND number < $1 AND (state = $2 OR $2 IS NULL) AND (workflow = $3 OR $3 IS NULL) ORDER BY number DESC LIMIT $4;

-- list_instances
SELECT {instance_columns}, (SELECT value FROM "shop".kept WHERE kept.number = instances.number AND kept.key = ''), (SELECT id FROM "shop".instances AS above WHERE above.number = instances.parent) FROM "shop".instances WHERE number < $1 AND (state = $2 OR $2 IS NULL) AND (workflow = $3 OR $3 IS NULL) ORDER BY number DESC LIMIT $4;

-- list_requests
SELECT row, substr(request_id, 1, 1024), substr(kind, 1, 64), substr(workflow, 1, 1024), substr(instance_id, 1, 1024), substr(event_name, 1, 1024), substr(input, 1, 4096), substr(policy, 1, 64), start_at_ms, deadline_after_ms, manual, substr(source, 1, 1024), inserted_at_ms, state, refusal, instance_number, handled_at_ms FROM "shop".requests WHERE row < $1 AND (state = $2 OR CAST($2 AS TEXT) IS NULL) ORDER BY row DESC LIMIT $3;

-- list_workflows
WITH RECURSIVE names(workflow) AS ( SELECT min(workflow) FROM "shop".instances UNION ALL SELECT (SELECT min(workflow) FROM "shop".instances WHERE workflow > names.workflow) FROM names WHERE names.workflow IS NOT NULL ) SELECT workflow FROM names WHERE workflow IS NOT NULL;

-- load_attempts
SELECT found.* FROM jsonb_array_elements($1::jsonb) AS wanted(pair) CROSS JOIN LATERAL ( SELECT {attempt_columns} FROM "shop".attempts WHERE number = (pair->>0)::bigint AND execution = (pair->>1)::bigint OFFSET 0 ) AS found ORDER BY number, activity, dimension, attempt;

-- load_history
SELECT found.* FROM jsonb_array_elements($1::jsonb) AS wanted(pair) CROSS JOIN LATERAL ( SELECT number, turn, events FROM "shop".history WHERE number = (pair->>0)::bigint AND execution = (pair->>1)::bigint OFFSET 0 ) AS found ORDER BY number, turn;

-- load_inbox
SELECT found.* FROM jsonb_array_elements($1::jsonb) AS wanted(pair) CROSS JOIN LATERAL ( SELECT {inbox_columns} FROM "shop".inbox WHERE number = (pair->>0)::bigint OFFSET 0 ) AS found ORDER BY number, row;

-- load_timers
SELECT found.* FROM jsonb_array_elements($1::jsonb) AS wanted(pair) CROSS JOIN LATERAL ( SELECT number, timer, due_at_ms FROM "shop".timers WHERE number = (pair->>0)::bigint AND execution = (pair->>1)::bigint OFFSET 0 ) AS found ORDER BY number, timer;

-- lock_attempt
SELECT {attempt_columns} FROM "shop".attempts WHERE number = $1 AND execution = $2 AND activity = $3 AND dimension = $4 AND attempt = $5 FOR NO KEY UPDATE;

-- lock_execution
SELECT execution, closed_at_ms FROM "shop".instances WHERE number = $1 FOR NO KEY UPDATE;

-- lock_families
WITH RECURSIVE family(number) AS ( SELECT named.number FROM unnest($1::bigint[]) AS named(number) UNION ALL SELECT child.number FROM family CROSS JOIN LATERAL ( SELECT instances.number FROM "shop".instances WHERE instances.parent = family.number ORDER BY instances.number OFFSET 0 ) AS child ) SELECT locked.number, locked.superseded_at_ms FROM "shop".instances AS locked WHERE locked.number = ANY (ARRAY(SELECT number FROM family)) ORDER BY locked.number FOR NO KEY UPDATE;

-- lock_instance
SELECT {instance_columns} FROM "shop".instances WHERE number = $1 FOR NO KEY UPDATE;

-- lock_instance_by_id
SELECT {instance_columns} FROM "shop".instances WHERE id = $1 AND superseded_at_ms IS NULL FOR NO KEY UPDATE;

-- lock_instances
SELECT number, superseded_at_ms FROM "shop".instances WHERE number = ANY ($1::bigint[]) ORDER BY number FOR NO KEY UPDATE;

-- lock_instances_and_ids
SELECT number FROM "shop".instances WHERE number = ANY ($1::bigint[] || ARRAY(SELECT number FROM "shop".instances WHERE id = ANY ($2::text[]) AND superseded_at_ms IS NULL)) ORDER BY number FOR NO KEY UPDATE;

-- lock_mailbox
SELECT number, state, execution, waits, mail, event_policy, mailbox_limit FROM "shop".instances WHERE number = $1 FOR NO KEY UPDATE;

-- lock_mailbox_by_id
SELECT number, state, execution, waits, mail, event_policy, mailbox_limit FROM "shop".instances WHERE id = $1 AND superseded_at_ms IS NULL FOR NO KEY UPDATE;

-- lock_offer
SELECT attempts.number, attempts.execution, attempts.activity, attempts.attempt, attempts.dimension, attempts.name, attempts.queue, attempts.state, attempts.ledger, attempts.input, attempts.options, attempts.available_at_ms, attempts.scheduled_at_ms, attempts.started_at_ms, attempts.closed_at_ms, attempts.expires_at_ms, attempts.heartbeat_at_ms, attempts.owner, attempts.failures, attempts.losses, attempts.details, attempts.failure, attempts.cancel_requested_at_ms, claim, sequences, withdrawn_at_ms FROM "shop".offers JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE offers.exec_id = $1 FOR NO KEY UPDATE;

-- lock_request
SELECT 1 FROM "shop".requests WHERE row = $1 AND state = 'NEW' FOR NO KEY UPDATE;

-- lock_worker
SELECT state, loss FROM "shop".workers WHERE key = $1;

-- lock_workers
SELECT key FROM "shop".workers WHERE key = ANY ($1::text[]) ORDER BY key FOR UPDATE;

-- mark_trace
UPDATE "shop".requests SET state = 'TRACE', instance_number = $2, handled_at_ms = $3 WHERE request_id = $1 AND state = 'NEW';

-- mark_worker_lost
UPDATE "shop".workers SET state = 'INACTIVE', loss = $3 WHERE key = $1 AND state = 'ACTIVE' AND deadline_ms <= $2;

-- move_attempt
UPDATE "shop".attempts SET state = $1, ledger = ledger + $2 - $12, failure = $3, closed_at_ms = $4, expires_at_ms = NULL WHERE number = $5 AND execution = $6 AND activity = $7 AND dimension = $8 AND attempt = $9 AND owner IS NOT DISTINCT FROM $10 AND state = $11 AND ledger / 1000000 = $12 / 1000000 AND (expires_at_ms <= $13 OR $13 IS NULL);

-- move_inbox
UPDATE "shop".inbox SET execution = $1 WHERE number = $2;

-- new_reports
SELECT page.row, left(event_id, 1024), left(activity_exec_id, 1024), CASE WHEN octet_length(page.claim) <= $3 THEN page.claim END, octet_length(page.claim)::bigint, left(transition, 64), sequence, CASE WHEN octet_length(payload) <= $2 THEN payload END, octet_length(payload)::bigint, CASE WHEN octet_length(error) <= $2 THEN error END, octet_length(error)::bigint, inserted_at_ms, number, execution, activity, attempt, dimension, name, state, EXISTS (SELECT 1 FROM "shop".activity_events AS early WHERE early.activity_exec_id = page.activity_exec_id AND early.state = 'WAITING'), name IS NULL OR name = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) AS is_mine FROM ( SELECT * FROM "shop".activity_events WHERE state = 'NEW' AND row > $5 ORDER BY row LIMIT $4 ) AS page LEFT JOIN "shop".offers ON offers.exec_id = page.activity_exec_id ORDER BY page.row;

-- new_requests
SELECT row, left(request_id, 1024), left(kind, 64), left(workflow, 1024), left(instance_id, 1024), left(event_name, 1024), CASE WHEN octet_length(input) <= $2 THEN input END, octet_length(input)::bigint, left(policy, 64), start_at_ms, deadline_after_ms, manual, is_mine FROM ( SELECT *, workflow IS NULL OR kind <> 'start' OR manual OR octet_length(workflow) NOT BETWEEN 1 AND 255 OR workflow = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) AS is_mine FROM "shop".requests WHERE state = 'NEW' AND row > $4 ORDER BY row LIMIT $3 ) AS page ORDER BY row;

-- newest_attempt
SELECT {attempt_columns} FROM "shop".attempts WHERE number = $1 AND execution = $2 AND activity = $3 AND dimension = $4 ORDER BY attempt DESC LIMIT 1 FOR NO KEY UPDATE;

-- newest_flow
SELECT definition FROM "shop".flows WHERE name = $1 ORDER BY saved_at_ms DESC, hash LIMIT 1;

-- next_claimable
SELECT min(( SELECT claimable_at_ms FROM "shop".instances WHERE workflow = keys.workflow AND version = keys.version AND claimable_at_ms > $2 ORDER BY claimable_at_ms LIMIT 1 )) FROM (SELECT pair.value ->> 0 AS workflow, pair.value ->> 1 AS version FROM jsonb_array_elements($1::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NOT NULL UNION SELECT name, version FROM "shop".flows WHERE name IN (SELECT pair.value ->> 0 FROM jsonb_array_elements($1::jsonb) AS pair(value) WHERE pair.value ->> 1 IS NULL)) AS keys;

-- next_expiry
SELECT min(expires_at_ms) FROM "shop".attempts WHERE expires_at_ms > $1 UNION ALL SELECT min(expires_at_ms) FROM "shop".instances WHERE expires_at_ms > $1 AND closed_at_ms IS NULL;

-- next_numbers
SELECT nextval('"shop".instance_numbers') FROM generate_series(1, $1::int);

-- next_ready
SELECT available_at_ms FROM "shop".attempts WHERE state = 'READY' AND queue = $1 AND available_at_ms > $2 AND available_at_ms < 1152921504606846976 AND name = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($3)::jsonb) AS json_each(value))) ORDER BY available_at_ms LIMIT 1;

-- numbers_of_families
WITH RECURSIVE family(number) AS ( SELECT named.number FROM unnest($1::bigint[]) AS named(number) UNION ALL SELECT child.number FROM family CROSS JOIN LATERAL ( SELECT instances.number FROM "shop".instances WHERE instances.parent = family.number ORDER BY instances.number OFFSET 0 ) AS child ) SELECT number FROM family;

-- numbers_of_ids
SELECT number, parent FROM "shop".instances WHERE id = ANY ($1::text[]) AND superseded_at_ms IS NULL;

-- numbers_of_owner
WITH RECURSIVE owned (number, place) AS ( SELECT 0::bigint, 0 UNION ALL SELECT ( SELECT later.number FROM "shop".instances AS later WHERE (later.owner, later.number) > ($1::text, owned.number) AND later.owner <= $1::text ORDER BY later.owner, later.number LIMIT 1 ), owned.place + 1 FROM owned WHERE owned.number IS NOT NULL AND owned.place < $2::int ) SELECT number FROM owned WHERE place > 0 UNION (SELECT number FROM "shop".attempts WHERE owner = $1 AND closed_at_ms IS NULL ORDER BY number, execution, activity, dimension, attempt LIMIT $2::int);

-- oldest_writer
SELECT pg_snapshot_xmin(pg_current_snapshot())::text;

-- open_attempts_before
SELECT min(execution) FROM "shop".attempts WHERE number = $1 AND execution < $2 AND closed_at_ms IS NULL;

-- open_children
SELECT {instance_columns}, parent_close FROM "shop".instances WHERE parent = $1 AND parent_execution = $2 AND closed_at_ms IS NULL AND parent_close <> 'abandon' AND (state <> 'CANCEL_REQUESTED' OR ($3 = 'terminated' AND parent_close = 'terminate')) LIMIT $4 FOR NO KEY UPDATE;

-- open_children_of
SELECT number FROM "shop".instances WHERE parent = ANY ($1::bigint[]) AND closed_at_ms IS NULL LIMIT $2;

-- open_closings
SELECT number, execution FROM "shop".closings LIMIT $1;

-- open_external_attempts
SELECT offers.exec_id, attempts.number, attempts.execution, attempts.activity, attempts.attempt, attempts.dimension, attempts.name, attempts.queue, attempts.state, attempts.ledger, attempts.input, attempts.options, attempts.available_at_ms, attempts.scheduled_at_ms, attempts.started_at_ms, attempts.closed_at_ms, attempts.expires_at_ms, attempts.heartbeat_at_ms, attempts.owner, attempts.failures, attempts.losses, attempts.details, attempts.failure, attempts.cancel_requested_at_ms FROM "shop".offers JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE offers.number > $1 AND offers.number <= $2 AND offers.withdrawn_at_ms IS NULL AND attempts.closed_at_ms IS NULL ORDER BY attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt FOR NO KEY UPDATE;

-- open_numbers
SELECT number FROM ( SELECT number FROM "shop".instances WHERE owner IS NOT NULL UNION ALL SELECT number FROM "shop".instances WHERE owner IS NULL AND closed_at_ms IS NULL ) AS open WHERE number > $1 ORDER BY number LIMIT $2;

-- open_offers
SELECT offers.exec_id, offers.entry, offers.withdrawn_at_ms, attempts.number, attempts.execution, attempts.activity, attempts.attempt, attempts.dimension, attempts.name, attempts.queue, attempts.state, attempts.ledger, attempts.input, attempts.options, attempts.available_at_ms, attempts.scheduled_at_ms, attempts.started_at_ms, attempts.closed_at_ms, attempts.expires_at_ms, attempts.heartbeat_at_ms, attempts.owner, attempts.failures, attempts.losses, attempts.details, attempts.failure, attempts.cancel_requested_at_ms, (SELECT id FROM "shop".instances WHERE instances.number = attempts.number), (SELECT workflow FROM "shop".instances WHERE instances.number = attempts.number) FROM "shop".attempts JOIN "shop".offers ON offers.number = attempts.number AND offers.execution = attempts.execution AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL WHERE attempts.state = 'READY' AND attempts.available_at_ms <= $1 AND (CAST($2 AS TEXT) IS NULL OR attempts.queue IN (SELECT value FROM jsonb_array_elements_text(($2)::jsonb) AS json_each(value))) AND (CAST($3 AS TEXT) IS NULL OR attempts.name IN (SELECT value FROM jsonb_array_elements_text(($3)::jsonb) AS json_each(value))) ORDER BY attempts.available_at_ms, offers.exec_id LIMIT $4;

-- open_reports
SELECT row, state FROM ( SELECT * FROM ( SELECT row, state FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'NEW' ORDER BY row LIMIT $2 ) AS new UNION ALL SELECT * FROM ( SELECT row, state FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'WAITING' ORDER BY row LIMIT $2 ) AS waiting ) AS found ORDER BY row LIMIT $2;

-- owned_attempt
SELECT {attempt_columns} FROM "shop".attempts WHERE number = $1 AND execution = $2 AND activity = $3 AND dimension = $4 AND attempt = $5 AND owner = $6 AND state = $7 AND ledger = $8;

-- owned_attempt_keys
SELECT number, execution, activity, attempt, dimension, state, ledger, cancel_requested_at_ms FROM "shop".attempts WHERE owner = $1 AND closed_at_ms IS NULL;

-- owned_attempts
SELECT {attempt_columns} FROM "shop".attempts WHERE owner = $1 AND closed_at_ms IS NULL ORDER BY number, execution, activity, dimension, attempt LIMIT $2 FOR NO KEY UPDATE;

-- owned_instances
SELECT number, fence FROM "shop".instances WHERE owner = $1;

-- parent_of
SELECT parent.number, child.parent_execution, child.parent_step, parent.state, parent.execution, parent.owner FROM (SELECT parent, parent_execution, parent_step FROM "shop".instances WHERE number = $1 OFFSET 0) AS child JOIN "shop".instances AS parent ON parent.number = child.parent FOR NO KEY UPDATE OF parent;

-- parents_of
SELECT parent FROM "shop".instances WHERE number = ANY ($1::bigint[]) AND parent IS NOT NULL;

-- pause_instance
UPDATE "shop".instances SET state = 'PAUSED', paused_from = state, paused_at_ms = $1, pause_reason = $2, fence = fence + 1, owner = NULL, claimable_at_ms = NULL WHERE number = $3 AND state IN ('REQUESTED', 'RUNNING');

-- payload_references
SELECT reference FROM "shop".payloads WHERE number = $1;

-- payload_users
SELECT input FROM "shop".instances WHERE number = $1 UNION ALL SELECT outcome FROM "shop".instances WHERE number = $1 UNION ALL SELECT events FROM "shop".history WHERE number = $1 UNION ALL SELECT event FROM "shop".inbox WHERE number = $1 UNION ALL SELECT input FROM "shop".attempts WHERE number = $1 UNION ALL SELECT details FROM "shop".attempts WHERE number = $1 UNION ALL SELECT failure FROM "shop".attempts WHERE number = $1 UNION ALL SELECT value FROM "shop".kept WHERE number = $1 UNION ALL SELECT answer FROM "shop".updates WHERE number = $1;

-- peek_inbox
SELECT {inbox_columns} FROM "shop".inbox WHERE number = $1 ORDER BY row LIMIT $2;

-- pending_queries
SELECT EXISTS (SELECT 1 FROM "shop".questions WHERE taken_by IS NULL AND expires_at_ms > $1), EXISTS (SELECT 1 FROM "shop".questions WHERE expires_at_ms <= $1) OR COALESCE((SELECT min(expires_at_ms) FROM "shop".updates WHERE expires_at_ms IS NOT NULL) <= $1, false);

-- pending_starts
SELECT COALESCE(instance_id, request_id), min(row) FROM ( SELECT row, request_id, workflow, instance_id, kind, manual FROM "shop".requests WHERE state = 'NEW' ORDER BY row ) AS waiting WHERE kind = 'start' AND manual = false AND octet_length(workflow) BETWEEN 1 AND 255 AND workflow NOT IN (SELECT value FROM jsonb_array_elements_text(($2)::jsonb) AS json_each(value)) AND COALESCE(instance_id, request_id) IN (SELECT value FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value)) AND EXISTS ( SELECT 1 FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value) WHERE (SELECT number FROM "shop".instances WHERE id = value AND superseded_at_ms IS NULL) IS NULL ) AND ( SELECT number FROM "shop".instances WHERE id = COALESCE(waiting.instance_id, waiting.request_id) AND superseded_at_ms IS NULL ) IS NULL GROUP BY COALESCE(instance_id, request_id);

-- prepare_attempt
UPDATE "shop".attempts SET state = 'PREPARING', ledger = $1, owner = $2 WHERE number = $3 AND execution = $4 AND activity = $5 AND dimension = $6 AND attempt = $7 AND state = 'READY' AND ledger = $8;

-- queue_attempt
UPDATE "shop".attempts SET state = 'QUEUED', ledger = $1, owner = $2, heartbeat_at_ms = $3, expires_at_ms = $4 WHERE number = $5 AND execution = $6 AND activity = $7 AND dimension = $8 AND attempt = $9 AND state = 'READY' AND ledger = $10;

-- queues
SELECT queue, CAST(sum(ready) AS BIGINT), CAST(sum(later) AS BIGINT), CAST(sum(running) AS BIGINT), min(oldest_at_ms) FROM ( SELECT queue, count(*) FILTER (WHERE available_at_ms <= $1) AS ready, count(*) FILTER (WHERE available_at_ms > $1) AS later, 0 AS running, min(available_at_ms) FILTER (WHERE available_at_ms <= $1) AS oldest_at_ms FROM "shop".attempts WHERE state = 'READY' AND available_at_ms < 1152921504606846976 GROUP BY queue UNION ALL SELECT queue, 0, 0, count(*), NULL FROM "shop".attempts WHERE owner IS NOT NULL AND closed_at_ms IS NULL GROUP BY queue UNION ALL SELECT queue, 0, 0, count(*), NULL FROM "shop".attempts WHERE expires_at_ms IS NOT NULL AND owner IS NULL AND state <> 'READY' AND closed_at_ms IS NULL GROUP BY queue ) AS counted GROUP BY queue;

-- raise_fences
UPDATE "shop".instances SET fence = fence + $1::bigint WHERE number = ANY (ARRAY( SELECT number FROM "shop".instances WHERE number > $2 AND closed_at_ms IS NULL ORDER BY number LIMIT $3 FOR NO KEY UPDATE )) RETURNING number;

-- read_attempts
SELECT {attempt_columns} FROM "shop".attempts WHERE number = $1 AND execution = $2 ORDER BY activity, dimension, attempt;

-- read_attributes
SELECT number, name, type, value FROM "shop".attributes WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) ORDER BY number, name, position;

-- read_clock
SELECT now_ms FROM "shop".clock;

-- read_closing
SELECT how FROM "shop".closings WHERE number = $1 AND execution = $2 FOR UPDATE;

-- read_deadline
SELECT deadline_at_ms, grace_ms, expires_at_ms FROM "shop".instances WHERE number = $1 AND deadline_at_ms IS NOT NULL;

-- read_families
WITH RECURSIVE family(root, number) AS ( SELECT named.number, named.number FROM "shop".instances AS named WHERE named.number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value))) UNION ALL SELECT family.root, child.number FROM family CROSS JOIN LATERAL ( SELECT instances.number FROM "shop".instances WHERE instances.parent = family.number ORDER BY instances.number OFFSET 0 ) AS child ) SELECT family.root, member.number, member.id, member.workflow, member.state, member.closed_at_ms, member.parent, (SELECT above.id FROM "shop".instances AS above WHERE above.number = member.parent), EXISTS ( SELECT 1 FROM "shop".attributes AS held WHERE held.number = member.number AND held.name = 'keep' AND held.position = 0 AND held.type = 'bool' AND (held.value || '') = $2 LIMIT 1 OFFSET 0 ) FROM family CROSS JOIN LATERAL (SELECT * FROM "shop".instances WHERE instances.number = family.number OFFSET 0) AS member ORDER BY member.number;

-- read_flow
SELECT definition FROM "shop".flows WHERE hash = $1;

-- read_history
SELECT turn, events FROM "shop".history WHERE number = $1 AND execution = $2 ORDER BY turn;

-- read_inbox
SELECT {inbox_columns} FROM "shop".inbox WHERE number = $1 ORDER BY row;

-- read_inbox_of_owner
SELECT waiting.row, waiting.number, waiting.execution, waiting.stamp_ms, waiting.event FROM ( SELECT {inbox_columns} FROM "shop".inbox WHERE row > $2 UNION ALL SELECT {inbox_columns} FROM "shop".inbox WHERE row <= $2 AND xid >= $3::text::xid8 ) AS waiting JOIN "shop".instances ON instances.number = waiting.number WHERE instances.owner = $1 ORDER BY waiting.row;

-- read_input
SELECT input FROM "shop".requests WHERE row = $1;

-- read_instance
SELECT {instance_columns} FROM "shop".instances WHERE number = $1;

-- read_instances
SELECT {instance_columns} FROM "shop".instances WHERE number = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(($1)::jsonb) AS json_each(value)));

-- read_key
SELECT collation_key FROM "shop".instances WHERE number = $1;

-- read_latest
SELECT {instance_columns}, (SELECT value FROM "shop".kept WHERE kept.number = instances.number AND kept.key = ''), NULL, (SELECT events FROM "shop".history WHERE history.number = instances.number AND history.execution = instances.execution ORDER BY history.turn DESC LIMIT 1) FROM "shop".instances WHERE number = $1;

-- read_notes
SELECT offers.number, offers.execution, offers.activity, offers.attempt, offers.dimension, activity_events.payload, activity_events.source, activity_events.sent_at, activity_events.inserted_at_ms FROM "shop".offers JOIN "shop".activity_events ON activity_events.activity_exec_id = offers.exec_id WHERE offers.number = $1 AND offers.execution = $2 AND activity_events.transition = 'NOTE' AND activity_events.state = 'APPLIED' ORDER BY activity_events.row DESC LIMIT $3;

-- read_offer
SELECT offers.exec_id, offers.entry, offers.withdrawn_at_ms, attempts.number, attempts.execution, attempts.activity, attempts.attempt, attempts.dimension, attempts.name, attempts.queue, attempts.state, attempts.ledger, attempts.input, attempts.options, attempts.available_at_ms, attempts.scheduled_at_ms, attempts.started_at_ms, attempts.closed_at_ms, attempts.expires_at_ms, attempts.heartbeat_at_ms, attempts.owner, attempts.failures, attempts.losses, attempts.details, attempts.failure, attempts.cancel_requested_at_ms, (SELECT id FROM "shop".instances WHERE instances.number = attempts.number), (SELECT workflow FROM "shop".instances WHERE instances.number = attempts.number) FROM "shop".offers JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE offers.exec_id = $1;

-- read_parent
SELECT parent.id, parent.number, child.parent_execution, child.parent_step FROM (SELECT parent, parent_execution, parent_step FROM "shop".instances WHERE number = $1 OFFSET 0) AS child JOIN "shop".instances AS parent ON parent.number = child.parent;

-- read_payload
SELECT data FROM "shop".payloads WHERE number = $1 AND reference = $2;

-- read_payloads
SELECT reference, data FROM "shop".payloads WHERE number = $1;

-- read_query_reply
SELECT answer FROM "shop".questions WHERE id = $1 AND answer IS NOT NULL;

-- read_report
SELECT state, refusal, cancel_requested, handled_at_ms FROM "shop".activity_events WHERE event_id = $1;

-- read_request
SELECT {request_columns} FROM "shop".requests WHERE request_id = $1;

-- read_secret
SELECT value FROM "shop".secrets WHERE name = $1;

-- read_set_aside
SELECT execution, events FROM "shop".history WHERE number = $1 AND execution >= $2 AND execution < $3 AND position($4::bytea IN events) > 0 ORDER BY execution DESC, turn DESC LIMIT $5;

-- read_state_values
SELECT key, value FROM "shop".kept WHERE number = $1 ORDER BY key;

-- read_update
SELECT id, state, answer, asked FROM "shop".updates WHERE number = $1 AND id = $2;

-- read_updates
SELECT id, state, answer FROM "shop".updates WHERE number = $1 ORDER BY id LIMIT $2;

-- read_values
SELECT payload, left(error, $2::int) FROM "shop".activity_events WHERE row = $1;

-- read_worker
SELECT {worker_columns} FROM "shop".workers WHERE key = $1 FOR NO KEY UPDATE;

-- read_workers
SELECT {worker_columns} FROM "shop".workers ORDER BY registered_at_ms;

-- ready_attempts
SELECT {attempt_columns}, (SELECT id FROM "shop".instances WHERE instances.number = attempts.number), (SELECT workflow FROM "shop".instances WHERE instances.number = attempts.number) FROM "shop".attempts WHERE state = 'READY' AND queue = $1 AND available_at_ms <= $2 AND name = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($3)::jsonb) AS json_each(value))) ORDER BY available_at_ms LIMIT $4 FOR NO KEY UPDATE OF attempts SKIP LOCKED;

-- refused_sequences
SELECT sequence FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'REFUSED' AND claim IS NOT DISTINCT FROM $2 AND sequence > $3 ORDER BY sequence;

-- register_worker
INSERT INTO "shop".workers (key, state, token, deadline_ms, lease_ms, host, queues, build, registered_at_ms, slots, workflows, activities, abandoned, versions) VALUES ($1, 'ACTIVE', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- release_attempt
UPDATE "shop".attempts SET state = 'READY', owner = NULL, available_at_ms = $1, expires_at_ms = $2 WHERE number = $3 AND execution = $4 AND activity = $5 AND dimension = $6 AND attempt = $7 AND state IN ('QUEUED', 'PREPARING');

-- release_instance
UPDATE "shop".instances SET owner = NULL, claimable_at_ms = CASE WHEN EXISTS ( SELECT 1 FROM "shop".inbox WHERE inbox.number = instances.number AND (inbox.name IS NULL OR (inbox.name = '') <> EXISTS (SELECT 1 FROM jsonb_array_elements_text((instances.waits)::jsonb) AS json_each(value) WHERE value = inbox.name)) ) THEN 0 ELSE (SELECT min(due_at_ms) FROM "shop".timers WHERE timers.number = instances.number AND timers.execution = instances.execution) END WHERE number = $1 AND fence = $2 AND owner = $3;

-- release_lost_instances
WITH RECURSIVE owned (number, place) AS ( SELECT 0::bigint, 0 UNION ALL SELECT ( SELECT later.number FROM "shop".instances AS later WHERE (later.owner, later.number) > ($1::text, owned.number) AND later.owner <= $1::text ORDER BY later.owner, later.number LIMIT 1 ), owned.place + 1 FROM owned WHERE owned.number IS NOT NULL AND owned.place < $2::int ) UPDATE "shop".instances SET owner = NULL, claimable_at_ms = 0, losses = losses + $3 WHERE number = ANY (ARRAY( SELECT number FROM "shop".instances WHERE number = ANY (ARRAY(SELECT number FROM owned)) AND owner = $1 FOR NO KEY UPDATE SKIP LOCKED ));

-- rename_offer
UPDATE "shop".offers SET exec_id = left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32) WHERE exec_id = $1 RETURNING exec_id;

-- rename_reports
UPDATE "shop".activity_events SET activity_exec_id = $1 WHERE activity_exec_id = $2;

-- renew_lease
UPDATE "shop".workers SET token = $1, deadline_ms = $2, lease_ms = $3, abandoned = $4 WHERE key = $5 AND state = 'ACTIVE' AND token = $6;

-- reports_of
SELECT found.row, left(event_id, 1024), left(activity_exec_id, 1024), CASE WHEN octet_length(found.claim) <= $3 THEN found.claim END, octet_length(found.claim)::bigint, left(transition, 64), sequence, CASE WHEN octet_length(payload) <= $2 THEN payload END, octet_length(payload)::bigint, CASE WHEN octet_length(error) <= $2 THEN error END, octet_length(error)::bigint, inserted_at_ms, number, execution, activity, attempt, dimension, name, state FROM ( SELECT * FROM ( SELECT * FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'NEW' ORDER BY row LIMIT $4 ) AS new UNION ALL SELECT * FROM ( SELECT * FROM "shop".activity_events WHERE activity_exec_id = $1 AND state = 'WAITING' ORDER BY row LIMIT $4 ) AS waiting ) AS found LEFT JOIN "shop".offers ON offers.exec_id = found.activity_exec_id ORDER BY found.row LIMIT $4;

-- request_activity_cancel
UPDATE "shop".attempts SET state = 'CANCELLED_RUNNING', cancel_requested_at_ms = $1, expires_at_ms = $2 WHERE number = $3 AND execution = $4 AND activity = $5 AND dimension = $6 AND attempt = $7 AND state = 'RUNNING' AND ledger / 1000000 = $8 / 1000000;

-- request_cancel
UPDATE "shop".instances SET state = $1, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL WHERE number = $2 AND state = $3;

-- restore_attempts
UPDATE "shop".attempts SET failure = NULL, scheduled_at_ms = scheduled_at_ms + $3 - $2, expires_at_ms = expires_at_ms - 1152921504606846976 + $3 - $2, available_at_ms = CASE WHEN available_at_ms - 1152921504606846976 <= $2 THEN available_at_ms - 1152921504606846976 + $3 - $2 WHEN available_at_ms - 1152921504606846976 <= $3 THEN $3 ELSE available_at_ms - 1152921504606846976 END WHERE number = $1 AND (state || '') = 'READY' AND available_at_ms >= 1152921504606846976;

-- resume_instance
UPDATE "shop".instances SET state = $1, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL, claimable_at_ms = $2, deadline_at_ms = deadline_at_ms + $3, expires_at_ms = deadline_at_ms + $3 WHERE number = $4 AND state = $5;

-- retry_blocked
UPDATE "shop".instances SET state = 'RUNNING', blocked = NULL, blocked_by = NULL, losses = 0, claimable_at_ms = 0 WHERE number = $1 AND state = 'BLOCKED';

-- run_attempt
UPDATE "shop".attempts SET state = 'RUNNING', ledger = $1, owner = $2, started_at_ms = $3, heartbeat_at_ms = $4, expires_at_ms = $5 WHERE number = $6 AND execution = $7 AND activity = $8 AND dimension = $9 AND attempt = $10 AND state = 'READY' AND ledger = $11;

-- run_prepared
UPDATE "shop".attempts SET state = 'RUNNING', ledger = $1, started_at_ms = $2, heartbeat_at_ms = $3, expires_at_ms = $4 WHERE number = $5 AND execution = $6 AND activity = $7 AND dimension = $8 AND attempt = $9 AND owner = $10 AND state = 'PREPARING' AND ledger = $11 RETURNING attempt;

-- running_attempts
SELECT attempts.number, attempts.execution, attempts.activity, attempts.attempt, attempts.dimension, attempts.name, attempts.queue, attempts.state, attempts.ledger, attempts.input, attempts.options, attempts.available_at_ms, attempts.scheduled_at_ms, attempts.started_at_ms, attempts.closed_at_ms, attempts.expires_at_ms, attempts.heartbeat_at_ms, attempts.owner, attempts.failures, attempts.losses, attempts.details, attempts.failure, attempts.cancel_requested_at_ms, instances.id, instances.workflow FROM "shop".attempts JOIN "shop".instances ON instances.number = attempts.number WHERE (attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt) > ($1, $2, $3, $4, $5) AND attempts.closed_at_ms IS NULL AND attempts.state IN ('RUNNING', 'CANCELLED_RUNNING') ORDER BY attempts.number, attempts.execution, attempts.activity, attempts.dimension, attempts.attempt LIMIT $6;

-- save_external_attempt
UPDATE "shop".attempts SET state = $1, ledger = $2, owner = $3, started_at_ms = $4, heartbeat_at_ms = $5, expires_at_ms = $6, details = $7 WHERE number = $8 AND execution = $9 AND activity = $10 AND dimension = $11 AND attempt = $12 AND state = $13 AND ledger = $14;

-- save_flow
INSERT INTO "shop".flows (hash, name, version, definition, saved_at_ms) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (hash) DO NOTHING;

-- server_time
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, now_ms FROM "shop".clock;

-- set_awaited_events
UPDATE "shop".instances SET waits = COALESCE($1, waits), mail = mail - $2 WHERE number = $3;

-- set_deadline
UPDATE "shop".instances SET grace_ms = $2, deadline_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + $1, expires_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + $1 WHERE number = $3 AND grace_ms IS NULL AND closed_at_ms IS NULL;

-- set_error
UPDATE "shop".instances SET error = $1 WHERE number = $2;

-- set_event_policy
UPDATE "shop".instances SET event_policy = $1, mailbox_limit = $2 WHERE number = $3;

-- set_start_at
UPDATE "shop".instances SET start_at_ms = $1 WHERE number = $2;

-- set_state_value
INSERT INTO "shop".kept (number, key, value) VALUES ($1, $2, $3) ON CONFLICT (number, key) DO UPDATE SET value = excluded.value;

-- set_version
UPDATE "shop".instances SET version = $1 WHERE number = $2;

-- span_of_numbers
SELECT COALESCE((SELECT max(number) FROM "shop".instances) - (SELECT min(number) FROM "shop".instances) + 1, 0);

-- start_child
INSERT INTO "shop".instances (id, workflow, version, state, execution, turn, fence, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, parent, parent_execution, parent_step, parent_close) VALUES ($1, $2, $3, 'REQUESTED', 1, 0, 0, 0, $4, $5, $6, $4, $7, $8, $9, $10) ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING RETURNING number;

-- start_grace
UPDATE "shop".instances SET expires_at_ms = $1 WHERE number = $2 AND expires_at_ms = $3;

-- start_instance
INSERT INTO "shop".instances (id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers) VALUES ($1, $2, $3, $4, 1, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING RETURNING number;

-- start_numbered
INSERT INTO "shop".instances (number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers) VALUES ($1, $2, $3, $4, $5, 1, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING;

-- start_timer
INSERT INTO "shop".timers (number, execution, timer, due_at_ms) VALUES ($1, $2, $3, $4);

-- store_size
SELECT COALESCE(sum(pg_total_relation_size(tables.oid)), 0)::bigint FROM pg_class AS tables WHERE tables.relnamespace = $1::text::regnamespace AND tables.relkind = 'r';

-- stranded_offers
SELECT DISTINCT activity_events.activity_exec_id FROM "shop".activity_events JOIN "shop".offers ON offers.exec_id = activity_events.activity_exec_id JOIN "shop".attempts ON attempts.number = offers.number AND attempts.execution = offers.execution AND attempts.activity = offers.activity AND attempts.dimension = offers.dimension AND attempts.attempt = offers.attempt WHERE activity_events.state = 'WAITING' AND (offers.withdrawn_at_ms IS NOT NULL OR attempts.closed_at_ms IS NOT NULL) LIMIT $1;

-- supersede_child
UPDATE "shop".instances SET superseded_at_ms = $1 WHERE id = $2 AND superseded_at_ms IS NULL AND closed_at_ms IS NOT NULL AND parent IS NOT NULL AND parent <> $3 AND (SELECT id FROM "shop".instances AS theirs WHERE theirs.number = instances.parent) = (SELECT id FROM "shop".instances AS ours WHERE ours.number = $3);

-- supersede_instance
UPDATE "shop".instances SET superseded_at_ms = $1 WHERE number = $2 AND superseded_at_ms IS NULL;

-- terminate_instance
UPDATE "shop".instances SET state = $1, outcome = $2, turn = turn + 1, stamp_ms = CASE WHEN stamp_ms > $3 THEN stamp_ms ELSE $3 END, closed_at_ms = $3, owner = NULL, claimable_at_ms = NULL, blocked = NULL, paused_at_ms = NULL, paused_from = NULL, pause_reason = NULL WHERE number = $4 AND state = $5;

-- update_offer
UPDATE "shop".offers SET claim = $1, sequences = $2 WHERE exec_id = $3;

-- void_commit
INSERT INTO "shop".commits (id, part, at_ms, is_void) VALUES ($1, $2, $3, true) ON CONFLICT (id, part) DO UPDATE SET at_ms = excluded.at_ms;

-- waiting_queues
SELECT found.queue FROM ( SELECT each.value AS queue, ( SELECT available_at_ms FROM "shop".attempts WHERE state = 'READY' AND queue = each.value AND available_at_ms <= $2 AND name = ANY (ARRAY(SELECT value FROM jsonb_array_elements_text(($3)::jsonb) AS json_each(value))) ORDER BY available_at_ms LIMIT 1 ) AS since_ms FROM jsonb_array_elements_text(($1)::jsonb) AS each(value) ) AS found WHERE found.since_ms IS NOT NULL ORDER BY found.since_ms;

-- wake_instance
UPDATE "shop".instances SET claimable_at_ms = 0 WHERE number = $1 AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED');

-- wakeup_targets
SELECT number, workflow, owner, claimable_at_ms, closed_at_ms IS NOT NULL OR state = 'BLOCKED', watchers FROM "shop".instances WHERE number = ANY ($1::bigint[]) AND (watchers IS NOT NULL OR owner IS NOT NULL OR claimable_at_ms IS NOT NULL);

-- was_received
SELECT 1 FROM "shop".received WHERE number = $1 AND id = $2;

-- watch_instance
UPDATE "shop".instances SET watchers = CASE WHEN watchers IS NULL OR length(watchers) > 1000 THEN CAST($1 AS TEXT) WHEN (' ' || watchers || ' ') LIKE ('% ' || CAST($1 AS TEXT) || ' %') THEN watchers ELSE watchers || ' ' || CAST($1 AS TEXT) END WHERE number = $2 AND closed_at_ms IS NULL;

-- withdraw_offer
UPDATE "shop".offers SET withdrawn_at_ms = $1 WHERE exec_id = $2;

-- withheld_queues
SELECT DISTINCT queue FROM "shop".attempts WHERE number = $1 AND (state || '') = 'READY' AND available_at_ms >= 1152921504606846976;

-- withhold_attempts
UPDATE "shop".attempts SET available_at_ms = available_at_ms + 1152921504606846976, expires_at_ms = expires_at_ms + 1152921504606846976 WHERE number = $1 AND (state || '') = 'READY' AND available_at_ms < 1152921504606846976;

-- worker_loads
SELECT owner, CAST(sum(attempts) AS BIGINT), CAST(sum(instances) AS BIGINT) FROM ( SELECT owner, count(*) AS attempts, 0 AS instances FROM "shop".attempts WHERE owner IS NOT NULL AND closed_at_ms IS NULL GROUP BY owner UNION ALL SELECT owner, 0, count(*) FROM "shop".instances WHERE owner IS NOT NULL GROUP BY owner ) AS counted GROUP BY owner;
