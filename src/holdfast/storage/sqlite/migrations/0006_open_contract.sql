-- The open contract (C2-C4): rows of clients and executors that are not Holdfast workers, and offers of external attempts.
-- Releases before this one would end external attempts without reading their reports, and start instances before their
-- time, so they may not open the store.
-- oldest: 6

-- One row asks for one thing. Clients insert; the engine writes the last four columns.
CREATE TABLE requests (
    row               INTEGER PRIMARY KEY,              -- the order of the inserts
    request_id        TEXT    NOT NULL UNIQUE,
    kind              TEXT    NOT NULL DEFAULT 'start', -- start, event or cancel
    workflow          TEXT,
    instance_id       TEXT,
    event_name        TEXT,
    input             TEXT    NOT NULL DEFAULT '[]',    -- JSON; checked when the row is handled
    policy            TEXT,
    start_at_ms       INTEGER,
    deadline_after_ms INTEGER,
    manual            INTEGER NOT NULL DEFAULT 0,       -- 1: a trace, which starts nothing (C3)
    source            TEXT,
    inserted_at_ms    INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    state             TEXT    NOT NULL DEFAULT 'NEW',   -- then ACCEPTED, REFUSED or TRACE
    refusal           TEXT,
    instance_number   INTEGER,
    handled_at_ms     INTEGER
) STRICT;

CREATE INDEX requests_new ON requests (row) WHERE state = 'NEW';
CREATE INDEX requests_of_instance ON requests (instance_number) WHERE instance_number IS NOT NULL;
CREATE INDEX requests_refused ON requests (handled_at_ms) WHERE state = 'REFUSED';

-- One row reports one event of an attempt. Clients insert; the engine writes the last four columns.
CREATE TABLE activity_events (
    row              INTEGER PRIMARY KEY,
    event_id         TEXT    NOT NULL UNIQUE,
    activity_exec_id TEXT    NOT NULL,
    claim            TEXT,
    transition       TEXT    NOT NULL,
    sequence         INTEGER,
    payload          TEXT,
    error            TEXT,
    source           TEXT,
    sent_at          TEXT,
    inserted_at_ms   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    state            TEXT    NOT NULL DEFAULT 'NEW',    -- then APPLIED, WAITING, DUPLICATE or REFUSED
    refusal          TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,        -- the answer to a heartbeat (A6)
    handled_at_ms    INTEGER
) STRICT;

CREATE INDEX activity_events_new ON activity_events (row) WHERE state = 'NEW';
CREATE INDEX activity_events_waiting ON activity_events (activity_exec_id) WHERE state = 'WAITING';
CREATE INDEX activity_events_of_offer ON activity_events (activity_exec_id, state, row);

-- The offers of external attempts to executors: an attempt is offered under a new id after each release.
CREATE TABLE offers (
    exec_id         TEXT    PRIMARY KEY,                -- 128 random bits
    number          INTEGER NOT NULL,
    execution       INTEGER NOT NULL,
    activity        INTEGER NOT NULL,
    dimension       TEXT    NOT NULL DEFAULT '',
    attempt         INTEGER NOT NULL,
    entry           INTEGER NOT NULL,                   -- 1 for the first offer of the attempt
    name            TEXT    NOT NULL,                   -- of the activity
    claim           TEXT,                               -- given by the event that took the attempt out of READY (A2)
    sequences       TEXT,                               -- the highest handled sequence of each claim, a JSON object
    withdrawn_at_ms INTEGER                             -- when it was released: the attempt has another id
) WITHOUT ROWID;

CREATE INDEX offers_of_attempt ON offers (number, execution, activity, dimension, attempt);

-- Clients write their own columns only.
CREATE TRIGGER requests_engine_columns BEFORE INSERT ON requests
WHEN NEW.state <> 'NEW' OR NEW.refusal IS NOT NULL OR NEW.instance_number IS NOT NULL OR NEW.handled_at_ms IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'state, refusal, instance_number and handled_at_ms of requests are written by the engine');
END;

CREATE TRIGGER activity_events_engine_columns BEFORE INSERT ON activity_events
WHEN NEW.state <> 'NEW' OR NEW.refusal IS NOT NULL OR NEW.cancel_requested <> 0 OR NEW.handled_at_ms IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'state, refusal, cancel_requested and handled_at_ms of activity_events are written by the engine');
END;

-- A cancel of this one activity, requested from outside of its workflow, which still waits for the answer.
ALTER TABLE attempts ADD COLUMN cancel_requested_at_ms INTEGER;

-- The first turn of the instance is taken no earlier; null: at once.
ALTER TABLE instances ADD COLUMN start_at_ms INTEGER;
