-- The open contract (C2-C4): rows of clients and executors that are not Holdfast workers, and offers of external attempts.
-- Releases before this one would end external attempts without reading their reports, and start instances before their
-- time, so they may not open the store.
-- oldest: 8

-- One row asks for one thing. Clients insert; the engine writes the last four columns.
CREATE TABLE requests (
    row               BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,  -- the order of the inserts
    request_id        TEXT COLLATE "C" PRIMARY KEY,
    kind              TEXT COLLATE "C" NOT NULL DEFAULT 'start',  -- start, event or cancel
    workflow          TEXT COLLATE "C",
    instance_id       TEXT COLLATE "C",
    event_name        TEXT COLLATE "C",
    input             TEXT COLLATE "C" NOT NULL DEFAULT '[]',     -- JSON; checked when the row is handled
    policy            TEXT COLLATE "C",
    start_at_ms       BIGINT,
    deadline_after_ms BIGINT,
    manual            BOOLEAN NOT NULL DEFAULT false,             -- true: a trace, which starts nothing (C3)
    source            TEXT COLLATE "C",
    inserted_at_ms    BIGINT NOT NULL DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT),
    state             TEXT COLLATE "C" NOT NULL DEFAULT 'NEW',    -- then ACCEPTED, REFUSED or TRACE
    refusal           TEXT COLLATE "C",
    instance_number   BIGINT,
    handled_at_ms     BIGINT
) WITH (fillfactor = 80);

CREATE INDEX requests_new ON requests (row) WHERE state = 'NEW';
CREATE INDEX requests_of_instance ON requests (instance_number) WHERE instance_number IS NOT NULL;
CREATE INDEX requests_refused ON requests (handled_at_ms) WHERE state = 'REFUSED';

-- One row reports one event of an attempt. Clients insert; the engine writes the last four columns.
CREATE TABLE activity_events (
    row              BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    event_id         TEXT COLLATE "C" PRIMARY KEY,
    activity_exec_id TEXT COLLATE "C" NOT NULL,
    claim            TEXT COLLATE "C",
    transition       TEXT COLLATE "C" NOT NULL,
    sequence         BIGINT,
    payload          TEXT COLLATE "C",
    error            TEXT COLLATE "C",
    source           TEXT COLLATE "C",
    sent_at          TEXT COLLATE "C",
    inserted_at_ms   BIGINT NOT NULL DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT),
    state            TEXT COLLATE "C" NOT NULL DEFAULT 'NEW',     -- then APPLIED, WAITING, DUPLICATE or REFUSED
    refusal          TEXT COLLATE "C",
    cancel_requested BOOLEAN NOT NULL DEFAULT false,              -- the answer to a heartbeat (A6)
    handled_at_ms    BIGINT
) WITH (fillfactor = 80);

CREATE INDEX activity_events_new ON activity_events (row) WHERE state = 'NEW';
CREATE INDEX activity_events_waiting ON activity_events (activity_exec_id) WHERE state = 'WAITING';
CREATE INDEX activity_events_of_offer ON activity_events (activity_exec_id, state, row);

-- The offers of external attempts to executors: an attempt is offered under a new id after each release.
CREATE TABLE offers (
    exec_id         TEXT COLLATE "C" PRIMARY KEY,                 -- 128 random bits
    number          BIGINT NOT NULL,
    execution       BIGINT NOT NULL,
    activity        BIGINT NOT NULL,
    dimension       TEXT COLLATE "C" NOT NULL DEFAULT '',
    attempt         BIGINT NOT NULL,
    entry           BIGINT NOT NULL,                              -- 1 for the first offer of the attempt
    name            TEXT COLLATE "C" NOT NULL,                    -- of the activity
    claim           TEXT COLLATE "C",                             -- given by the event that took the attempt out of READY (A2)
    sequences       TEXT COLLATE "C",                             -- the highest handled sequence of each claim, a JSON object
    withdrawn_at_ms BIGINT                                        -- when it was released: the attempt has another id
);

CREATE INDEX offers_of_attempt ON offers (number, execution, activity, dimension, attempt);

-- A cancel of this one activity, requested from outside of its workflow, which still waits for the answer.
ALTER TABLE attempts ADD COLUMN cancel_requested_at_ms BIGINT;

-- The first turn of the instance is taken no earlier; null: at once.
ALTER TABLE instances ADD COLUMN start_at_ms BIGINT;
