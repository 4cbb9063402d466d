-- The views and functions of the open contract (C2-C4). Their names, columns and parameters are a public interface:
-- columns may be added, never changed.
-- oldest: 8

-- A temporary table of a caller must not take the place of a table of the store: the temporary schema, which is searched
-- first unless it is named, comes last.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Attempts that an executor may claim. The time is the later one of the server's clock and the store's (W9). Options or
-- inputs that are damaged give null, so that one damaged row does not hide the others: options are searched as text, a
-- large input is compared with its hash, and a small one is checked to be UTF-8. A security barrier: a function of the
-- reader must not see rows that the view leaves out.
CREATE VIEW open_activities WITH (security_barrier = true) AS
SELECT
    offers.exec_id AS activity_exec_id,
    attempts.name AS activity_name,
    instances.id AS workflow_exec_id,
    instances.workflow AS workflow_name,
    attempts.queue AS queue,
    CASE
        WHEN substring(attempts.input FROM 1 FOR 1) = '\x40'::bytea THEN (
            SELECT CASE WHEN payloads.reference = encode(sha256(payloads.data), 'hex')
                THEN convert_from(payloads.data, 'UTF8') END
            FROM payloads
            WHERE payloads.number = attempts.number
                AND payloads.reference = encode(substring(attempts.input FROM 2), 'escape')
        )
        WHEN encode(attempts.input, 'hex') ~ '^(?:0[1-9a-f]|[1-7][0-9a-f]|(?:c[2-9a-f]|d[0-9a-f])[89ab][0-9a-f]|e0[ab][0-9a-f][89ab][0-9a-f]|e[1-9abcef](?:[89ab][0-9a-f]){2}|ed[89][0-9a-f][89ab][0-9a-f]|f0[9ab][0-9a-f](?:[89ab][0-9a-f]){2}|f[1-3](?:[89ab][0-9a-f]){3}|f48[0-9a-f](?:[89ab][0-9a-f]){2})*$'
        THEN convert_from(attempts.input, 'UTF8')
    END AS input,
    attempts.attempt AS attempt,
    instances.id || '/' || attempts.number || '/' || attempts.execution || '/' || attempts.activity AS idempotency_key,
    CASE WHEN encode(attempts.options, 'escape') ~ '"stream":\{'
        THEN COALESCE(
            substring(encode(attempts.options, 'escape') FROM '"stream":\{[^}]*"delivered":([0-9]{1,18})')::bigint, 0
        ) END AS responses,
    substring(encode(attempts.options, 'escape') FROM '"heartbeat_ms":([0-9]{1,18})')::bigint AS heartbeat_ms,
    substring(encode(attempts.options, 'escape') FROM '"start_to_close_ms":([0-9]{1,18})')::bigint AS start_to_close_ms,
    attempts.expires_at_ms AS expires_at_ms
FROM attempts
JOIN offers ON offers.number = attempts.number AND offers.execution = attempts.execution
    AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension
    AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL
JOIN instances ON instances.number = attempts.number
WHERE attempts.state = 'READY' AND attempts.available_at_ms <= (
    SELECT greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, now_ms) FROM clock
);

CREATE VIEW activities WITH (security_barrier = true) AS
SELECT
    instances.id AS workflow_exec_id,
    attempts.execution AS execution,
    attempts.activity AS activity_number,
    attempts.name AS activity_name,
    attempts.attempt AS attempt,
    attempts.state AS state,
    attempts.ledger AS ledger,
    attempts.queue AS queue,
    attempts.scheduled_at_ms AS scheduled_at_ms,
    attempts.started_at_ms AS started_at_ms,
    attempts.closed_at_ms AS closed_at_ms,
    attempts.heartbeat_at_ms AS heartbeat_at_ms,
    attempts.state = 'CANCELLED_RUNNING' OR attempts.cancel_requested_at_ms IS NOT NULL AS cancel_requested
FROM instances JOIN attempts ON attempts.number = instances.number
WHERE instances.superseded_at_ms IS NULL;

CREATE VIEW workflows WITH (security_barrier = true) AS
SELECT
    id AS workflow_exec_id,
    workflow AS workflow_name,
    version,
    state,
    execution,
    collation_key,
    created_at_ms,
    closed_at_ms
FROM instances WHERE superseded_at_ms IS NULL;

CREATE VIEW request_status AS
SELECT
    request_id,
    CASE kind WHEN 'start' THEN COALESCE(instance_id, request_id) ELSE instance_id END AS instance_id,
    state,
    refusal,
    handled_at_ms
FROM requests;

CREATE VIEW activity_event_status AS
SELECT event_id, state, refusal, cancel_requested, handled_at_ms FROM activity_events;

-- Each function inserts one row and returns its id. It runs with the rights and in the transaction of its caller. Without
-- a conflict target the insert needs no right to read.
CREATE FUNCTION start_workflow(workflow TEXT, input TEXT, id TEXT, request_id TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE sql VOLATILE SECURITY INVOKER SET search_path FROM CURRENT AS $function$
    WITH given AS MATERIALIZED (SELECT COALESCE($4, gen_random_uuid()::text) AS given_id),
    inserted AS (
        INSERT INTO requests (request_id, kind, workflow, instance_id, input)
        SELECT given_id, 'start', $1, $3, COALESCE($2, '[]') FROM given
        ON CONFLICT DO NOTHING
    )
    SELECT given_id FROM given
$function$;

CREATE FUNCTION raise_event(id TEXT, name TEXT, value TEXT, request_id TEXT DEFAULT NULL) RETURNS TEXT
LANGUAGE sql VOLATILE SECURITY INVOKER SET search_path FROM CURRENT AS $function$
    WITH given AS MATERIALIZED (SELECT COALESCE($4, gen_random_uuid()::text) AS given_id),
    inserted AS (
        INSERT INTO requests (request_id, kind, instance_id, event_name, input)
        SELECT given_id, 'event', $1, $2, COALESCE($3, 'null') FROM given
        ON CONFLICT DO NOTHING
    )
    SELECT given_id FROM given
$function$;

CREATE FUNCTION report(
    activity_exec_id TEXT,
    transition TEXT,
    payload TEXT DEFAULT NULL,
    error TEXT DEFAULT NULL,
    claim TEXT DEFAULT NULL,
    event_id TEXT DEFAULT NULL,
    sequence BIGINT DEFAULT NULL
) RETURNS TEXT
LANGUAGE sql VOLATILE SECURITY INVOKER SET search_path FROM CURRENT AS $function$
    WITH given AS MATERIALIZED (SELECT COALESCE($6, gen_random_uuid()::text) AS given_id),
    inserted AS (
        INSERT INTO activity_events (event_id, activity_exec_id, transition, payload, error, claim, sequence)
        SELECT given_id, $1, $2, $3, $4, $5, $7 FROM given
        ON CONFLICT DO NOTHING
    )
    SELECT given_id FROM given
$function$;

-- Refused events of unknown ids are pruned by time.
CREATE INDEX activity_events_refused ON activity_events (handled_at_ms) WHERE state = 'REFUSED';
