-- Written by tools/generate_batch.py from the statements of the store, see `group_function.py`.
-- Writes a group in one call, and fails if one of its statements does not change the rows that it is for.
-- oldest: 14
-- optional

CREATE FUNCTION commit_group_2(
    _id BIGINT, _part BIGINT, _at_ms BIGINT, _numbers BIGINT[], _ids TEXT[],
    _kinds SMALLINT[], _counts INT[], _given TEXT[],
    _concerned BIGINT[], _wanted INT, _relaxed BOOLEAN
) RETURNS TEXT LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off AS $function$
DECLARE
    _at INT := 0;
    _n INT;
    _met BIGINT;
    _fresh BIGINT[];
    _targets JSON;
    _server_ms BIGINT;
    _mark_ms BIGINT;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (current_setting('transaction_read_only') = 'on' AND NOT pg_is_in_recovery()) THEN
        RAISE EXCEPTION 'the transaction is not READ COMMITTED, READ WRITE' USING ERRCODE = 'HF002';
    END IF;
    IF _relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(_ids) > 0 THEN
        PERFORM number FROM instances WHERE number = ANY (_numbers::bigint[] || ARRAY(SELECT number FROM instances WHERE id = ANY (_ids::text[]) AND superseded_at_ms IS NULL)) ORDER BY number FOR NO KEY UPDATE;
    ELSIF cardinality(_numbers) > 0 THEN
        PERFORM number, superseded_at_ms FROM instances WHERE number = ANY (_numbers::bigint[]) ORDER BY number FOR NO KEY UPDATE;
    END IF;
    IF _id IS NOT NULL THEN
        INSERT INTO commits (id, part, at_ms) SELECT _id::bigint, _part::bigint, _at_ms::bigint WHERE NOT EXISTS (SELECT 1 FROM commits WHERE id = _id::bigint AND NOT is_void) ON CONFLICT (id, part) DO NOTHING;
        GET DIAGNOSTICS _met = ROW_COUNT;
        IF _met <> 1 THEN
            RAISE EXCEPTION 'a commit of this id was made before' USING ERRCODE = 'HF001';
        END IF;
    END IF;
    FOR _place IN 1 .. cardinality(_kinds) LOOP
        _n := _counts[_place];
        CASE abs(_kinds[_place])
        WHEN 1 THEN  -- active_worker
            PERFORM 1 FROM workers WHERE key = _given[_at + 1]::text AND state = 'ACTIVE' FOR KEY SHARE;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 2 THEN  -- lock_request
            PERFORM 1 FROM requests WHERE row = _given[_at + 1]::bigint AND state = 'NEW' FOR NO KEY UPDATE;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 3 THEN  -- start_numbered
            IF _n = 1 THEN
                INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text, _given[_at + 3]::text, _given[_at + 4]::text, _given[_at + 5]::text, 1, _given[_at + 6]::bigint, _given[_at + 7]::bigint, _given[_at + 8]::text, _given[_at + 9]::bigint, _given[_at + 10]::bigint, _given[_at + 11]::bytea, _given[_at + 12]::bytea, _given[_at + 13]::bigint, _given[_at + 14]::text, _given[_at + 15]::text) ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING;
            ELSE
                INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key, watchers) SELECT given.c1, given.c2, given.c3, given.c4, given.c5, 1, given.c6, given.c7, given.c8, given.c9, given.c10, given.c11, given.c12, given.c13, given.c14, given.c15 FROM (SELECT _given[_at + (_row - 1) * 15 + 1]::bigint AS c1, _given[_at + (_row - 1) * 15 + 2]::text AS c2, _given[_at + (_row - 1) * 15 + 3]::text AS c3, _given[_at + (_row - 1) * 15 + 4]::text AS c4, _given[_at + (_row - 1) * 15 + 5]::text AS c5, _given[_at + (_row - 1) * 15 + 6]::bigint AS c6, _given[_at + (_row - 1) * 15 + 7]::bigint AS c7, _given[_at + (_row - 1) * 15 + 8]::text AS c8, _given[_at + (_row - 1) * 15 + 9]::bigint AS c9, _given[_at + (_row - 1) * 15 + 10]::bigint AS c10, _given[_at + (_row - 1) * 15 + 11]::bytea AS c11, _given[_at + (_row - 1) * 15 + 12]::bytea AS c12, _given[_at + (_row - 1) * 15 + 13]::bigint AS c13, _given[_at + (_row - 1) * 15 + 14]::text AS c14, _given[_at + (_row - 1) * 15 + 15]::text AS c15 FROM generate_series(1, _n) AS _row OFFSET 0) AS given ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 15;
        WHEN 4 THEN  -- set_start_at
            UPDATE instances SET start_at_ms = _given[_at + 1]::bigint WHERE number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 5 THEN  -- set_deadline
            UPDATE instances SET grace_ms = _given[_at + 2]::bigint, deadline_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + _given[_at + 1]::bigint, expires_at_ms = CASE WHEN start_at_ms > created_at_ms THEN start_at_ms ELSE created_at_ms END + _given[_at + 1]::bigint WHERE number = _given[_at + 3]::bigint AND grace_ms IS NULL AND closed_at_ms IS NULL;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 6 THEN  -- watch_instance
            UPDATE instances SET watchers = CASE WHEN watchers IS NULL OR length(watchers) > 1000 THEN CAST(_given[_at + 1]::text AS TEXT) WHEN (' ' || watchers || ' ') LIKE ('% ' || CAST(_given[_at + 1]::text AS TEXT) || ' %') THEN watchers ELSE watchers || ' ' || CAST(_given[_at + 1]::text AS TEXT) END WHERE number = _given[_at + 2]::bigint AND closed_at_ms IS NULL;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 7 THEN  -- move_attempt
            IF _n = 1 THEN
                UPDATE attempts SET state = _given[_at + 1]::text, ledger = ledger + _given[_at + 2]::bigint - _given[_at + 12]::bigint, failure = _given[_at + 3]::bytea, closed_at_ms = _given[_at + 4]::bigint, expires_at_ms = NULL WHERE number = _given[_at + 5]::bigint AND execution = _given[_at + 6]::bigint AND activity = _given[_at + 7]::bigint AND dimension = _given[_at + 8]::text AND attempt = _given[_at + 9]::bigint AND owner IS NOT DISTINCT FROM _given[_at + 10]::text AND state = _given[_at + 11]::text AND ledger / 1000000 = _given[_at + 12]::bigint / 1000000 AND (expires_at_ms <= _given[_at + 13]::bigint OR _given[_at + 13]::bigint IS NULL);
            ELSE
                UPDATE attempts SET state = given.c1, ledger = ledger + given.c2 - given.c12, failure = given.c3, closed_at_ms = given.c4, expires_at_ms = NULL FROM (SELECT _given[_at + (_row - 1) * 13 + 1]::text AS c1, _given[_at + (_row - 1) * 13 + 2]::bigint AS c2, _given[_at + (_row - 1) * 13 + 3]::bytea AS c3, _given[_at + (_row - 1) * 13 + 4]::bigint AS c4, _given[_at + (_row - 1) * 13 + 5]::bigint AS c5, _given[_at + (_row - 1) * 13 + 6]::bigint AS c6, _given[_at + (_row - 1) * 13 + 7]::bigint AS c7, _given[_at + (_row - 1) * 13 + 8]::text AS c8, _given[_at + (_row - 1) * 13 + 9]::bigint AS c9, _given[_at + (_row - 1) * 13 + 10]::text AS c10, _given[_at + (_row - 1) * 13 + 11]::text AS c11, _given[_at + (_row - 1) * 13 + 12]::bigint AS c12, _given[_at + (_row - 1) * 13 + 13]::bigint AS c13 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c5 AND execution = given.c6 AND activity = given.c7 AND dimension = given.c8 AND attempt = given.c9 AND owner IS NOT DISTINCT FROM given.c10 AND state = given.c11 AND ledger / 1000000 = given.c12 / 1000000 AND (expires_at_ms <= given.c13 OR given.c13 IS NULL);
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 13;
        WHEN 8 THEN  -- has_read_all
            IF _n = 1 THEN
                PERFORM 1 WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = _given[_at + 1]::bigint AND row > _given[_at + 2]::bigint AND name IS NOT NULL);
            ELSE
                PERFORM 1 FROM (SELECT _given[_at + (_row - 1) * 2 + 1]::bigint AS c1, _given[_at + (_row - 1) * 2 + 2]::bigint AS c2 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = given.c1 AND row > given.c2 AND name IS NOT NULL);
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 9 THEN  -- commit_turn
            IF _n = 1 THEN
                UPDATE instances SET turn = _given[_at + 1]::bigint, stamp_ms = _given[_at + 2]::bigint, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END WHERE number = _given[_at + 3]::bigint AND fence = _given[_at + 4]::bigint AND owner = _given[_at + 5]::text AND turn = _given[_at + 6]::bigint;
            ELSE
                UPDATE instances SET turn = given.c1, stamp_ms = given.c2, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END FROM (SELECT _given[_at + (_row - 1) * 6 + 1]::bigint AS c1, _given[_at + (_row - 1) * 6 + 2]::bigint AS c2, _given[_at + (_row - 1) * 6 + 3]::bigint AS c3, _given[_at + (_row - 1) * 6 + 4]::bigint AS c4, _given[_at + (_row - 1) * 6 + 5]::text AS c5, _given[_at + (_row - 1) * 6 + 6]::bigint AS c6 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c3 AND fence = given.c4 AND owner = given.c5 AND turn = given.c6;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 6;
        WHEN 10 THEN  -- commit_flow_turn
            IF _n = 1 THEN
                UPDATE instances SET turn = _given[_at + 1]::bigint, stamp_ms = _given[_at + 2]::bigint, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END, collation_key = _given[_at + 3]::text WHERE number = _given[_at + 4]::bigint AND fence = _given[_at + 5]::bigint AND owner = _given[_at + 6]::text AND turn = _given[_at + 7]::bigint;
            ELSE
                UPDATE instances SET turn = given.c1, stamp_ms = given.c2, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END, collation_key = given.c3 FROM (SELECT _given[_at + (_row - 1) * 7 + 1]::bigint AS c1, _given[_at + (_row - 1) * 7 + 2]::bigint AS c2, _given[_at + (_row - 1) * 7 + 3]::text AS c3, _given[_at + (_row - 1) * 7 + 4]::bigint AS c4, _given[_at + (_row - 1) * 7 + 5]::bigint AS c5, _given[_at + (_row - 1) * 7 + 6]::text AS c6, _given[_at + (_row - 1) * 7 + 7]::bigint AS c7 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c4 AND fence = given.c5 AND owner = given.c6 AND turn = given.c7;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 7;
        WHEN 11 THEN  -- append_history
            IF _n = 1 THEN
                INSERT INTO history (number, execution, turn, events) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea);
            ELSE
                INSERT INTO history (number, execution, turn, events) SELECT given.c1, given.c2, given.c3, given.c4 FROM (SELECT _given[_at + (_row - 1) * 4 + 1]::bigint AS c1, _given[_at + (_row - 1) * 4 + 2]::bigint AS c2, _given[_at + (_row - 1) * 4 + 3]::bigint AS c3, _given[_at + (_row - 1) * 4 + 4]::bytea AS c4 FROM generate_series(1, _n) AS _row OFFSET 0) AS given;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 4;
        WHEN 12 THEN  -- set_version
            UPDATE instances SET version = _given[_at + 1]::text WHERE number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 13 THEN  -- insert_payload
            INSERT INTO payloads (reference, number, data) VALUES (_given[_at + 1]::text, _given[_at + 2]::bigint, _given[_at + 3]::bytea) ON CONFLICT (number, reference) DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 14 THEN  -- insert_attempt
            IF _n = 1 THEN
                INSERT INTO attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, expires_at_ms, failures, losses, details) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bigint, _given[_at + 5]::text, _given[_at + 6]::text, _given[_at + 7]::text, _given[_at + 8]::bigint, _given[_at + 9]::text, _given[_at + 10]::bytea, _given[_at + 11]::bytea, _given[_at + 12]::bigint, _given[_at + 13]::bigint, _given[_at + 14]::bigint, _given[_at + 15]::bigint, _given[_at + 16]::bigint, _given[_at + 17]::bigint, _given[_at + 18]::bytea);
            ELSE
                INSERT INTO attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, expires_at_ms, failures, losses, details) SELECT given.c1, given.c2, given.c3, given.c4, given.c5, given.c6, given.c7, given.c8, given.c9, given.c10, given.c11, given.c12, given.c13, given.c14, given.c15, given.c16, given.c17, given.c18 FROM (SELECT _given[_at + (_row - 1) * 18 + 1]::bigint AS c1, _given[_at + (_row - 1) * 18 + 2]::bigint AS c2, _given[_at + (_row - 1) * 18 + 3]::bigint AS c3, _given[_at + (_row - 1) * 18 + 4]::bigint AS c4, _given[_at + (_row - 1) * 18 + 5]::text AS c5, _given[_at + (_row - 1) * 18 + 6]::text AS c6, _given[_at + (_row - 1) * 18 + 7]::text AS c7, _given[_at + (_row - 1) * 18 + 8]::bigint AS c8, _given[_at + (_row - 1) * 18 + 9]::text AS c9, _given[_at + (_row - 1) * 18 + 10]::bytea AS c10, _given[_at + (_row - 1) * 18 + 11]::bytea AS c11, _given[_at + (_row - 1) * 18 + 12]::bigint AS c12, _given[_at + (_row - 1) * 18 + 13]::bigint AS c13, _given[_at + (_row - 1) * 18 + 14]::bigint AS c14, _given[_at + (_row - 1) * 18 + 15]::bigint AS c15, _given[_at + (_row - 1) * 18 + 16]::bigint AS c16, _given[_at + (_row - 1) * 18 + 17]::bigint AS c17, _given[_at + (_row - 1) * 18 + 18]::bytea AS c18 FROM generate_series(1, _n) AS _row OFFSET 0) AS given;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 18;
        WHEN 15 THEN  -- insert_offer
            INSERT INTO offers (exec_id, number, execution, activity, dimension, attempt, entry, name) VALUES (left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32), _given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::text, _given[_at + 5]::bigint, _given[_at + 6]::bigint, _given[_at + 7]::text);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 7;
        WHEN 16 THEN  -- delete_inbox
            IF _n = 1 THEN
                DELETE FROM inbox WHERE row = _given[_at + 1]::bigint AND number = _given[_at + 2]::bigint;
            ELSE
                DELETE FROM inbox USING (SELECT _given[_at + (_row - 1) * 2 + 1]::bigint AS c1, _given[_at + (_row - 1) * 2 + 2]::bigint AS c2 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE row = given.c1 AND number = given.c2;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 17 THEN  -- exit_response
            UPDATE attempts SET ledger = ledger + _given[_at + 1]::bigint - _given[_at + 7]::bigint WHERE number = _given[_at + 2]::bigint AND execution = _given[_at + 3]::bigint AND activity = _given[_at + 4]::bigint AND dimension = _given[_at + 5]::text AND attempt = _given[_at + 6]::bigint AND ledger / 1000000 = _given[_at + 7]::bigint / 1000000;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 7;
        WHEN 18 THEN  -- cancel_activity
            UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(_given[_at + 1]::bigint AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = _given[_at + 2]::bigint AND execution = _given[_at + 3]::bigint AND activity = _given[_at + 4]::bigint AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 4;
        WHEN 19 THEN  -- hasten_silence
            UPDATE attempts SET expires_at_ms = _given[_at + 1]::bigint WHERE number = _given[_at + 2]::bigint AND state = 'CANCELLED_RUNNING' AND owner IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > _given[_at + 1]::bigint);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 20 THEN  -- start_timer
            IF _n = 1 THEN
                INSERT INTO timers (number, execution, timer, due_at_ms) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bigint);
            ELSE
                INSERT INTO timers (number, execution, timer, due_at_ms) SELECT given.c1, given.c2, given.c3, given.c4 FROM (SELECT _given[_at + (_row - 1) * 4 + 1]::bigint AS c1, _given[_at + (_row - 1) * 4 + 2]::bigint AS c2, _given[_at + (_row - 1) * 4 + 3]::bigint AS c3, _given[_at + (_row - 1) * 4 + 4]::bigint AS c4 FROM generate_series(1, _n) AS _row OFFSET 0) AS given;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 4;
        WHEN 21 THEN  -- end_timer
            IF _n = 1 THEN
                DELETE FROM timers WHERE number = _given[_at + 1]::bigint AND execution = _given[_at + 2]::bigint AND timer = _given[_at + 3]::bigint;
            ELSE
                DELETE FROM timers USING (SELECT _given[_at + (_row - 1) * 3 + 1]::bigint AS c1, _given[_at + (_row - 1) * 3 + 2]::bigint AS c2, _given[_at + (_row - 1) * 3 + 3]::bigint AS c3 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c1 AND execution = given.c2 AND timer = given.c3;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 22 THEN  -- set_awaited_events
            IF _n = 1 THEN
                UPDATE instances SET waits = COALESCE(_given[_at + 1]::text, waits), mail = mail - _given[_at + 2]::bigint WHERE number = _given[_at + 3]::bigint;
            ELSE
                UPDATE instances SET waits = COALESCE(given.c1, waits), mail = mail - given.c2 FROM (SELECT _given[_at + (_row - 1) * 3 + 1]::text AS c1, _given[_at + (_row - 1) * 3 + 2]::bigint AS c2, _given[_at + (_row - 1) * 3 + 3]::bigint AS c3 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c3;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 23 THEN  -- forget_received
            DELETE FROM received WHERE number = _given[_at + 1]::bigint AND id = _given[_at + 2]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 24 THEN  -- set_event_policy
            UPDATE instances SET event_policy = _given[_at + 1]::text, mailbox_limit = _given[_at + 2]::bigint WHERE number = _given[_at + 3]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 25 THEN  -- set_state_value
            INSERT INTO kept (number, key, value) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text, _given[_at + 3]::bytea) ON CONFLICT (number, key) DO UPDATE SET value = excluded.value;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 26 THEN  -- delete_state_value
            DELETE FROM kept WHERE number = _given[_at + 1]::bigint AND key = _given[_at + 2]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 27 THEN  -- answer_update
            UPDATE updates SET state = _given[_at + 3]::text, answer = _given[_at + 4]::bytea, expires_at_ms = _given[_at + 5]::bigint WHERE number = _given[_at + 1]::bigint AND id = _given[_at + 2]::text AND answer IS NULL;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 5;
        WHEN 28 THEN  -- delete_attribute
            DELETE FROM attributes WHERE number = _given[_at + 1]::bigint AND name = _given[_at + 2]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 29 THEN  -- insert_attribute
            INSERT INTO attributes (number, name, position, type, value, created_at_ms) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text, _given[_at + 3]::bigint, _given[_at + 4]::text, _given[_at + 5]::text, (SELECT created_at_ms FROM instances WHERE number = _given[_at + 1]::bigint));
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 5;
        WHEN 30 THEN  -- insert_received
            INSERT INTO received (number, id) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 31 THEN  -- count_event
            UPDATE instances SET mail = mail + 1, claimable_at_ms = CASE WHEN _given[_at + 1]::boolean AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED') THEN 0 ELSE claimable_at_ms END WHERE number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 32 THEN  -- insert_inbox
            IF _n = 1 THEN
                INSERT INTO inbox (number, execution, stamp_ms, event) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea);
            ELSE
                INSERT INTO inbox (number, execution, stamp_ms, event) SELECT given.c1, given.c2, given.c3, given.c4 FROM (SELECT _given[_at + (_row - 1) * 4 + 1]::bigint AS c1, _given[_at + (_row - 1) * 4 + 2]::bigint AS c2, _given[_at + (_row - 1) * 4 + 3]::bigint AS c3, _given[_at + (_row - 1) * 4 + 4]::bytea AS c4 FROM generate_series(1, _n) AS _row OFFSET 0) AS given;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 4;
        WHEN 33 THEN  -- insert_message
            INSERT INTO inbox (number, execution, stamp_ms, event, name) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea, _given[_at + 5]::text);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 5;
        WHEN 34 THEN  -- wake_instance
            UPDATE instances SET claimable_at_ms = 0 WHERE number = _given[_at + 1]::bigint AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED');
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 35 THEN  -- exit_responses
            UPDATE attempts SET ledger = ledger + ledger % 1000000000000 / 1000000 - ledger % 1000000 - CASE WHEN state IN ('COMPLETED', 'FAILED') AND ledger / 1000000000000 % 10 = 9 AND NOT EXISTS ( SELECT 1 FROM attempts AS later WHERE later.number = attempts.number AND later.execution = attempts.execution AND later.activity = attempts.activity AND later.dimension = attempts.dimension AND later.attempt = attempts.attempt + 1) THEN 1000000000000 ELSE 0 END WHERE number = _given[_at + 1]::bigint AND ledger % 1000000000000 / 1000000 > ledger % 1000000;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 36 THEN  -- delete_inbox_of_instance
            IF _n = 1 THEN
                DELETE FROM inbox WHERE number = _given[_at + 1]::bigint;
            ELSE
                DELETE FROM inbox USING (SELECT _given[_at + (_row - 1) * 1 + 1]::bigint AS c1 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c1;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 37 THEN  -- delete_asked_updates
            DELETE FROM updates WHERE number = _given[_at + 1]::bigint AND answer IS NULL AND state = 'asked';
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 38 THEN  -- clear_timers
            IF _n = 1 THEN
                DELETE FROM timers WHERE number = _given[_at + 1]::bigint;
            ELSE
                DELETE FROM timers USING (SELECT _given[_at + (_row - 1) * 1 + 1]::bigint AS c1 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c1;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 1;
        WHEN 39 THEN  -- cancel_activities
            IF _n = 1 THEN
                UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(_given[_at + 1]::bigint AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = _given[_at + 2]::bigint AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');
            ELSE
                UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(given.c1 AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END FROM (SELECT _given[_at + (_row - 1) * 2 + 1]::bigint AS c1, _given[_at + (_row - 1) * 2 + 2]::bigint AS c2 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c2 AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 40 THEN  -- close_instance
            IF _n = 1 THEN
                UPDATE instances SET state = _given[_at + 1]::text, outcome = _given[_at + 2]::bytea, closed_at_ms = _given[_at + 3]::bigint, owner = NULL, claimable_at_ms = NULL WHERE number = _given[_at + 4]::bigint;
            ELSE
                UPDATE instances SET state = given.c1, outcome = given.c2, closed_at_ms = given.c3, owner = NULL, claimable_at_ms = NULL FROM (SELECT _given[_at + (_row - 1) * 4 + 1]::text AS c1, _given[_at + (_row - 1) * 4 + 2]::bytea AS c2, _given[_at + (_row - 1) * 4 + 3]::bigint AS c3, _given[_at + (_row - 1) * 4 + 4]::bigint AS c4 FROM generate_series(1, _n) AS _row OFFSET 0) AS given WHERE number = given.c4;
            END IF;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 4;
        WHEN 41 THEN  -- set_error
            UPDATE instances SET error = _given[_at + 1]::text WHERE number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        WHEN 42 THEN  -- release_instance
            UPDATE instances SET owner = NULL, claimable_at_ms = CASE WHEN EXISTS ( SELECT 1 FROM inbox WHERE inbox.number = instances.number AND (inbox.name IS NULL OR (inbox.name = '') <> EXISTS (SELECT 1 FROM jsonb_array_elements_text((instances.waits)::jsonb) AS json_each(value) WHERE value = inbox.name)) ) THEN 0 ELSE (SELECT min(due_at_ms) FROM timers WHERE timers.number = instances.number AND timers.execution = instances.execution) END WHERE number = _given[_at + 1]::bigint AND fence = _given[_at + 2]::bigint AND owner = _given[_at + 3]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 43 THEN  -- insert_request
            INSERT INTO requests ( request_id, kind, workflow, instance_id, event_name, input, policy, start_at_ms, deadline_after_ms, manual, source, inserted_at_ms ) VALUES (_given[_at + 1]::text, _given[_at + 2]::text, _given[_at + 3]::text, _given[_at + 4]::text, _given[_at + 5]::text, _given[_at + 6]::text, _given[_at + 7]::text, _given[_at + 8]::bigint, _given[_at + 9]::bigint, _given[_at + 10]::boolean, _given[_at + 11]::text, _given[_at + 12]::bigint) ON CONFLICT (request_id) DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 12;
        WHEN 44 THEN  -- mark_trace
            UPDATE requests SET state = 'TRACE', instance_number = _given[_at + 2]::bigint, handled_at_ms = _given[_at + 3]::bigint WHERE request_id = _given[_at + 1]::text AND state = 'NEW';
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 3;
        WHEN 45 THEN  -- handle_request
            UPDATE requests SET state = _given[_at + 1]::text, refusal = _given[_at + 2]::text, instance_number = _given[_at + 3]::bigint, handled_at_ms = _given[_at + 4]::bigint WHERE row = _given[_at + 5]::bigint AND state = 'NEW';
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 5;
        WHEN 46 THEN  -- advance_clock
            UPDATE clock SET now_ms = _given[_at + 1]::bigint WHERE ctid = ANY (ARRAY(SELECT ctid FROM clock WHERE now_ms < _given[_at + 1]::bigint::bigint - _given[_at + 2]::bigint::bigint FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + _n * 2;
        END CASE;
        IF _kinds[_place] > 0 AND _met <> _n THEN
            RAISE EXCEPTION 'run % of kind % met % rows of %', _place, _kinds[_place], _met, _n
                USING ERRCODE = 'HF001';
        END IF;
    END LOOP;
    IF _wanted > 0 THEN
        _fresh := ARRAY(SELECT nextval('instance_numbers') FROM generate_series(1, _wanted::int));
    END IF;
    IF cardinality(_concerned) > 0 THEN
        SELECT json_agg(_target) INTO _targets FROM (SELECT number, workflow, owner, claimable_at_ms, closed_at_ms IS NOT NULL OR state = 'BLOCKED', watchers FROM instances WHERE number = ANY (_concerned::bigint[]) AND (watchers IS NOT NULL OR owner IS NOT NULL OR claimable_at_ms IS NOT NULL)) AS _target;
    END IF;
    SELECT * INTO _server_ms, _mark_ms FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, now_ms FROM clock) AS _read;
    RETURN '[' || _server_ms || ',' || _mark_ms || ',' || coalesce(to_json(_fresh)::text, 'null') || ','
        || coalesce(_targets::text, 'null') || ']';
END $function$;
