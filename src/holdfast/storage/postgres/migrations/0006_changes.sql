-- Written by tools/generate_batch.py from the statements of the store, see `batching.py`.
-- Makes many changes in one call, and fails if one of them does not meet the row it is for.
-- oldest: 1
-- optional

CREATE FUNCTION apply_changes_2(_kinds SMALLINT[], _given TEXT[]) RETURNS VOID LANGUAGE plpgsql
SET search_path FROM CURRENT AS $function$
DECLARE
    _at INT := 0;
    _met BIGINT;
BEGIN
    FOR _place IN 1 .. cardinality(_kinds) LOOP
        CASE abs(_kinds[_place])
        WHEN 1 THEN
            INSERT INTO commits (id, part, at_ms) SELECT _given[_at + 1]::bigint::bigint, _given[_at + 2]::bigint::bigint, _given[_at + 3]::bigint::bigint WHERE NOT EXISTS (SELECT 1 FROM commits WHERE id = _given[_at + 1]::bigint::bigint AND NOT is_void) ON CONFLICT (id, part) DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 2 THEN
            PERFORM 1 FROM workers WHERE key = _given[_at + 1]::text AND state = 'ACTIVE' FOR KEY SHARE;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 3 THEN
            UPDATE attempts SET state = _given[_at + 1]::text, ledger = ledger + _given[_at + 2]::bigint - _given[_at + 12]::bigint, failure = _given[_at + 3]::bytea, closed_at_ms = _given[_at + 4]::bigint, expires_at_ms = NULL WHERE number = _given[_at + 5]::bigint AND execution = _given[_at + 6]::bigint AND activity = _given[_at + 7]::bigint AND dimension = _given[_at + 8]::text AND attempt = _given[_at + 9]::bigint AND owner IS NOT DISTINCT FROM _given[_at + 10]::text AND state = _given[_at + 11]::text AND ledger / 1000000 = _given[_at + 12]::bigint / 1000000 AND (expires_at_ms <= _given[_at + 13]::bigint OR _given[_at + 13]::bigint IS NULL);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 13;
        WHEN 4 THEN
            UPDATE instances SET turn = _given[_at + 1]::bigint, stamp_ms = _given[_at + 2]::bigint, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END WHERE number = _given[_at + 3]::bigint AND fence = _given[_at + 4]::bigint AND owner = _given[_at + 5]::text AND turn = _given[_at + 6]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 6;
        WHEN 5 THEN
            INSERT INTO history (number, execution, turn, events) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 4;
        WHEN 6 THEN
            INSERT INTO attempts (number, execution, activity, attempt, name, queue, state, ledger, owner, input, options, available_at_ms, scheduled_at_ms, started_at_ms, expires_at_ms, failures, losses, details) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bigint, _given[_at + 5]::text, _given[_at + 6]::text, _given[_at + 7]::text, _given[_at + 8]::bigint, _given[_at + 9]::text, _given[_at + 10]::bytea, _given[_at + 11]::bytea, _given[_at + 12]::bigint, _given[_at + 13]::bigint, _given[_at + 14]::bigint, _given[_at + 15]::bigint, _given[_at + 16]::bigint, _given[_at + 17]::bigint, _given[_at + 18]::bytea);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 18;
        WHEN 7 THEN
            INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, owner, claimable_at_ms, stamp_ms, input, input_hash, created_at_ms, collation_key) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text, _given[_at + 3]::text, _given[_at + 4]::text, _given[_at + 5]::text, 1, _given[_at + 6]::bigint, _given[_at + 7]::bigint, _given[_at + 8]::text, _given[_at + 9]::bigint, _given[_at + 10]::bigint, _given[_at + 11]::bytea, _given[_at + 12]::bytea, _given[_at + 13]::bigint, _given[_at + 14]::text) ON CONFLICT (id) WHERE superseded_at_ms IS NULL DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 14;
        WHEN 8 THEN
            UPDATE attempts SET ledger = ledger + ledger % 1000000000000 / 1000000 - ledger % 1000000 - CASE WHEN state IN ('COMPLETED', 'FAILED') AND ledger / 1000000000000 % 10 = 9 AND NOT EXISTS ( SELECT 1 FROM attempts AS later WHERE later.number = attempts.number AND later.execution = attempts.execution AND later.activity = attempts.activity AND later.dimension = attempts.dimension AND later.attempt = attempts.attempt + 1) THEN 1000000000000 ELSE 0 END WHERE number = _given[_at + 1]::bigint AND ledger % 1000000000000 / 1000000 > ledger % 1000000;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 9 THEN
            DELETE FROM inbox WHERE number = _given[_at + 1]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 10 THEN
            DELETE FROM updates WHERE number = _given[_at + 1]::bigint AND answer IS NULL AND state = 'asked';
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 11 THEN
            DELETE FROM timers WHERE number = _given[_at + 1]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 12 THEN
            UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(_given[_at + 1]::bigint AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = _given[_at + 2]::bigint AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 13 THEN
            PERFORM 1 WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = _given[_at + 1]::bigint AND row > _given[_at + 2]::bigint AND name IS NOT NULL);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 14 THEN
            UPDATE instances SET state = _given[_at + 1]::text, outcome = _given[_at + 2]::bytea, closed_at_ms = _given[_at + 3]::bigint, owner = NULL, claimable_at_ms = NULL WHERE number = _given[_at + 4]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 4;
        WHEN 15 THEN
            DELETE FROM inbox WHERE row = _given[_at + 1]::bigint AND number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 16 THEN
            INSERT INTO timers (number, execution, timer, due_at_ms) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bigint);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 4;
        WHEN 17 THEN
            DELETE FROM timers WHERE number = _given[_at + 1]::bigint AND execution = _given[_at + 2]::bigint AND timer = _given[_at + 3]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 18 THEN
            UPDATE instances SET waits = COALESCE(_given[_at + 1]::text, waits), mail = mail - _given[_at + 2]::bigint WHERE number = _given[_at + 3]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 19 THEN
            INSERT INTO inbox (number, execution, stamp_ms, event) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 4;
        WHEN 20 THEN
            UPDATE instances SET mail = mail + 1, claimable_at_ms = CASE WHEN _given[_at + 1]::boolean AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED') THEN 0 ELSE claimable_at_ms END WHERE number = _given[_at + 2]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 21 THEN
            INSERT INTO inbox (number, execution, stamp_ms, event, name) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::bigint, _given[_at + 3]::bigint, _given[_at + 4]::bytea, _given[_at + 5]::text);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 5;
        WHEN 22 THEN
            INSERT INTO received (number, id) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text);
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 23 THEN
            UPDATE instances SET claimable_at_ms = 0 WHERE number = _given[_at + 1]::bigint AND owner IS NULL AND state IN ('REQUESTED', 'RUNNING', 'CANCEL_REQUESTED');
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 1;
        WHEN 24 THEN
            UPDATE attempts SET ledger = ledger + _given[_at + 1]::bigint - _given[_at + 7]::bigint WHERE number = _given[_at + 2]::bigint AND execution = _given[_at + 3]::bigint AND activity = _given[_at + 4]::bigint AND dimension = _given[_at + 5]::text AND attempt = _given[_at + 6]::bigint AND ledger / 1000000 = _given[_at + 7]::bigint / 1000000;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 7;
        WHEN 25 THEN
            INSERT INTO payloads (reference, number, data) VALUES (_given[_at + 1]::text, _given[_at + 2]::bigint, _given[_at + 3]::bytea) ON CONFLICT (number, reference) DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 26 THEN
            UPDATE attempts SET closed_at_ms = CASE WHEN state = 'RUNNING' THEN NULL ELSE CAST(_given[_at + 1]::bigint AS BIGINT) END, expires_at_ms = CASE WHEN state = 'RUNNING' THEN expires_at_ms END, state = CASE state WHEN 'RUNNING' THEN 'CANCELLED_RUNNING' ELSE 'CANCELLED' END WHERE number = _given[_at + 2]::bigint AND execution = _given[_at + 3]::bigint AND activity = _given[_at + 4]::bigint AND state IN ('REQUESTED', 'READY', 'QUEUED', 'PREPARING', 'RUNNING');
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 4;
        WHEN 27 THEN
            INSERT INTO kept (number, key, value) VALUES (_given[_at + 1]::bigint, _given[_at + 2]::text, _given[_at + 3]::bytea) ON CONFLICT (number, key) DO UPDATE SET value = excluded.value;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 28 THEN
            DELETE FROM kept WHERE number = _given[_at + 1]::bigint AND key = _given[_at + 2]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 2;
        WHEN 29 THEN
            UPDATE instances SET owner = NULL, claimable_at_ms = CASE WHEN EXISTS ( SELECT 1 FROM inbox WHERE inbox.number = instances.number AND (inbox.name IS NULL OR (inbox.name = '') <> EXISTS (SELECT 1 FROM jsonb_array_elements_text((instances.waits)::jsonb) AS json_each(value) WHERE value = inbox.name)) ) THEN 0 ELSE (SELECT min(due_at_ms) FROM timers WHERE timers.number = instances.number AND timers.execution = instances.execution) END WHERE number = _given[_at + 1]::bigint AND fence = _given[_at + 2]::bigint AND owner = _given[_at + 3]::text;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 30 THEN
            UPDATE instances SET event_policy = _given[_at + 1]::text, mailbox_limit = _given[_at + 2]::bigint WHERE number = _given[_at + 3]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 3;
        WHEN 31 THEN
            UPDATE updates SET state = _given[_at + 3]::text, answer = _given[_at + 4]::bytea, expires_at_ms = _given[_at + 5]::bigint WHERE number = _given[_at + 1]::bigint AND id = _given[_at + 2]::text AND answer IS NULL;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 5;
        WHEN 32 THEN
            UPDATE instances SET turn = _given[_at + 1]::bigint, stamp_ms = _given[_at + 2]::bigint, losses = 0, state = CASE state WHEN 'REQUESTED' THEN 'RUNNING' ELSE state END, collation_key = _given[_at + 3]::text WHERE number = _given[_at + 4]::bigint AND fence = _given[_at + 5]::bigint AND owner = _given[_at + 6]::text AND turn = _given[_at + 7]::bigint;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 7;
        WHEN 33 THEN
            INSERT INTO flows (hash, name, version, definition, saved_at_ms) VALUES (_given[_at + 1]::text, _given[_at + 2]::text, _given[_at + 3]::text, _given[_at + 4]::bytea, _given[_at + 5]::bigint) ON CONFLICT (hash) DO NOTHING;
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + 5;
        END CASE;
        IF _kinds[_place] > 0 AND _met <> 1 THEN
            RAISE EXCEPTION 'change % of kind % met % rows', _place, _kinds[_place], _met USING ERRCODE = 'HF001';
        END IF;
    END LOOP;
END $function$;
