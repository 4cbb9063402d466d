-- The views of the open contract (C2-C4). They work in SQLite 3.37 and later: no `->>`, no unixepoch('subsec'). Their
-- names and columns are a public interface: columns may be added, never changed.
-- oldest: 6

-- Attempts that an executor may claim. The time is the later one of the machine's clock and the store's (W9). Options
-- or inputs that are damaged give null, so that one damaged row does not hide the others.
CREATE VIEW open_activities AS
SELECT
    offers.exec_id AS activity_exec_id,
    attempts.name AS activity_name,
    instances.id AS workflow_exec_id,
    instances.workflow AS workflow_name,
    attempts.queue AS queue,
    CASE WHEN substr(attempts.input, 1, 1) = x'40' THEN (
        SELECT CAST(payloads.data AS TEXT) FROM payloads
        WHERE payloads.number = attempts.number AND payloads.reference = CAST(substr(attempts.input, 2) AS TEXT)
    ) ELSE CAST(attempts.input AS TEXT) END AS input,
    attempts.attempt AS attempt,
    instances.id || '/' || attempts.number || '/' || attempts.execution || '/' || attempts.activity AS idempotency_key,
    CASE WHEN json_valid(CAST(attempts.options AS TEXT)) THEN CASE
        WHEN json_type(CAST(attempts.options AS TEXT), '$.stream') = 'object'
        THEN COALESCE(json_extract(CAST(attempts.options AS TEXT), '$.stream.delivered'), 0)
    END END AS responses,
    CASE WHEN json_valid(CAST(attempts.options AS TEXT))
        THEN json_extract(CAST(attempts.options AS TEXT), '$.heartbeat_ms') END AS heartbeat_ms,
    CASE WHEN json_valid(CAST(attempts.options AS TEXT))
        THEN json_extract(CAST(attempts.options AS TEXT), '$.start_to_close_ms') END AS start_to_close_ms,
    attempts.expires_at_ms AS expires_at_ms
FROM attempts
JOIN offers ON offers.number = attempts.number AND offers.execution = attempts.execution
    AND offers.activity = attempts.activity AND offers.dimension = attempts.dimension
    AND offers.attempt = attempts.attempt AND offers.withdrawn_at_ms IS NULL
JOIN instances ON instances.number = attempts.number
WHERE attempts.state = 'READY' AND attempts.available_at_ms <= max(
    CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), (SELECT now_ms FROM clock)
);

CREATE VIEW activities AS
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

CREATE VIEW workflows AS
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

-- Refused events of unknown ids are pruned by time.
CREATE INDEX activity_events_refused ON activity_events (handled_at_ms) WHERE state = 'REFUSED';
