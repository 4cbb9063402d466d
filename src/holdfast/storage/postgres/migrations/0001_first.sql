-- The first schema: the tables of every store, in PostgreSQL's types. Texts are compared byte by byte, whatever the
-- language of the database. Later migrations add; they take nothing away that the release before them uses.
-- oldest: 1

CREATE SEQUENCE instance_numbers;

-- Its pages are left a third empty: most changes of an instance touch no column that has an index, and stay in their page.
CREATE TABLE instances (
    number           BIGINT PRIMARY KEY DEFAULT nextval('instance_numbers'),  -- never reused (G1)
    id               TEXT COLLATE "C" NOT NULL,
    workflow         TEXT COLLATE "C" NOT NULL,
    version          TEXT COLLATE "C" NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    execution        BIGINT NOT NULL,
    turn             BIGINT NOT NULL,
    fence            BIGINT NOT NULL,
    owner            TEXT COLLATE "C",                      -- a worker's key; null: no worker has it in memory (G2)
    claimable_at_ms  BIGINT,                                -- when unowned: when it has something to do; null: never
    stamp_ms         BIGINT NOT NULL,                       -- the time of the last message applied (G10)
    input            BYTEA NOT NULL,
    input_hash       BYTEA NOT NULL,
    outcome          BYTEA,
    blocked          TEXT COLLATE "C",                      -- why it is parked (G12)
    blocked_by       TEXT COLLATE "C",                      -- the builds that could not go on with it, a JSON list
    created_at_ms    BIGINT NOT NULL,
    closed_at_ms     BIGINT,
    losses           BIGINT NOT NULL DEFAULT 0,             -- owners lost while they ran its code, since its last turn (G12)
    waits            TEXT COLLATE "C",                      -- the events that its code waits for, a JSON list (G6)
    mail             BIGINT NOT NULL DEFAULT 0,             -- how many events are in its inbox
    event_policy     TEXT COLLATE "C",                      -- the policy for events without a wait; null: kept
    mailbox_limit    BIGINT,                                -- how many are kept; null: the usual number
    superseded_at_ms BIGINT,                                -- when its id was given to a new instance; null: it has it
    deadline_at_ms   BIGINT,                                -- until when it has to end; null: it has no deadline
    grace_ms         BIGINT,                                -- for its clean-up after that; null: it is not decided yet
    expires_at_ms    BIGINT,                                -- its deadline, and once that was acted upon the end of its grace
    parent           BIGINT,                                -- the number of the instance whose code started it
    parent_execution BIGINT,                                -- the execution of it that did: only that one is answered (G4)
    parent_step      BIGINT,                                -- the number of the child in that execution
    parent_close     TEXT COLLATE "C",                      -- what the end of that execution does to it
    collation_key    TEXT COLLATE "C"                       -- of a flow: one digit for each of its activities (K1)
) WITH (fillfactor = 70);

CREATE INDEX instances_claimable ON instances (workflow, claimable_at_ms) WHERE claimable_at_ms IS NOT NULL;
CREATE UNIQUE INDEX instances_current ON instances (id) WHERE superseded_at_ms IS NULL;  -- G3: an id means one instance
CREATE INDEX instances_earlier ON instances (id) WHERE superseded_at_ms IS NOT NULL;
CREATE INDEX instances_blocked ON instances (workflow) WHERE state = 'BLOCKED';
CREATE INDEX instances_suspected ON instances (owner, claimable_at_ms) WHERE losses >= 2;  -- G12: tried one at a time
CREATE INDEX instances_expiring ON instances (expires_at_ms) WHERE expires_at_ms IS NOT NULL AND closed_at_ms IS NULL;
CREATE INDEX instances_owned ON instances (owner, number) WHERE owner IS NOT NULL;
CREATE INDEX instances_children ON instances (parent, number) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX instances_steps ON instances (parent, parent_execution, parent_step) WHERE parent IS NOT NULL;
CREATE INDEX instances_open_children ON instances (parent, parent_execution)
    WHERE parent IS NOT NULL AND closed_at_ms IS NULL;

-- Flows as they were when instances were started with them: an instance stays on its version.
CREATE TABLE flows (
    hash        TEXT COLLATE "C" PRIMARY KEY,               -- of the definition
    name        TEXT COLLATE "C" NOT NULL,
    version     TEXT COLLATE "C" NOT NULL,
    definition  BYTEA NOT NULL,
    saved_at_ms BIGINT NOT NULL
);

-- Executions that have ended, and whose children still have to learn it: what is left of a large family (C1).
CREATE TABLE closings (
    number           BIGINT NOT NULL,
    execution        BIGINT NOT NULL,
    how              TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (number, execution)
);

CREATE TABLE history (
    number           BIGINT NOT NULL,
    execution        BIGINT NOT NULL,
    turn             BIGINT NOT NULL,
    events           BYTEA NOT NULL,
    PRIMARY KEY (number, execution, turn)
);

CREATE TABLE inbox (
    row              BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    number           BIGINT NOT NULL,
    execution        BIGINT NOT NULL,
    stamp_ms         BIGINT NOT NULL,
    event            BYTEA NOT NULL,
    name             TEXT COLLATE "C",                      -- of an event, which stays until it is awaited (G6); empty: an update
    xid              XID8 NOT NULL DEFAULT pg_current_xact_id()  -- its writer: row numbers may become visible out of order
);

CREATE INDEX inbox_of_instance ON inbox (number);
CREATE INDEX inbox_by_writer ON inbox (xid);

-- The ids of messages that were taken (G6): the same one twice changes nothing.
CREATE TABLE received (
    number           BIGINT NOT NULL,
    id               TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (number, id)
);

CREATE TABLE timers (
    number           BIGINT NOT NULL,
    execution        BIGINT NOT NULL,
    timer            BIGINT NOT NULL,
    due_at_ms        BIGINT NOT NULL,
    PRIMARY KEY (number, execution, timer)
);

CREATE TABLE attempts (
    number           BIGINT NOT NULL,
    execution        BIGINT NOT NULL,
    activity         BIGINT NOT NULL,
    dimension        TEXT COLLATE "C" NOT NULL DEFAULT '',
    attempt          BIGINT NOT NULL,
    name             TEXT COLLATE "C" NOT NULL,
    queue            TEXT COLLATE "C" NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    ledger           BIGINT NOT NULL,
    owner            TEXT COLLATE "C",
    input            BYTEA NOT NULL,
    options          BYTEA NOT NULL,
    available_at_ms  BIGINT NOT NULL,
    scheduled_at_ms  BIGINT NOT NULL,
    started_at_ms    BIGINT,
    closed_at_ms     BIGINT,
    expires_at_ms    BIGINT,                                -- the nearest of its deadlines (A5)
    heartbeat_at_ms  BIGINT,
    details          BYTEA,
    failures         BIGINT NOT NULL DEFAULT 0,
    losses           BIGINT NOT NULL DEFAULT 0,
    failure          BYTEA,
    PRIMARY KEY (number, execution, activity, dimension, attempt)
);

CREATE INDEX attempts_ready ON attempts (queue, available_at_ms, name) WHERE state = 'READY';
CREATE INDEX attempts_held ON attempts (owner, number)          -- claimed or running: a list of states here would be a table of
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL;   -- its own for SQLite, built again for each row that is written
CREATE INDEX attempts_expiring ON attempts (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

CREATE TABLE payloads (
    number           BIGINT NOT NULL,
    reference        TEXT COLLATE "C" NOT NULL,             -- a hash of the data
    data             BYTEA NOT NULL,
    PRIMARY KEY (number, reference)
);

CREATE TABLE kept (
    number           BIGINT NOT NULL,                       -- not of one execution: continue-as-new carries it over (G4)
    key              TEXT COLLATE "C" NOT NULL,             -- empty: the status that the code set
    value            BYTEA NOT NULL,
    PRIMARY KEY (number, key)
);

-- What was sent to change a workflow, and what came of it: kept as long as its instance, so that the same id is answered
-- the same again. One that was rejected is only kept until its sender has read it.
CREATE TABLE updates (
    number           BIGINT NOT NULL,                       -- not of one execution: the next one may answer (G4)
    id               TEXT COLLATE "C" NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    answer           BYTEA,                                 -- null while it is open
    expires_at_ms    BIGINT,                                -- of one that was rejected
    asked            BYTEA NOT NULL,                        -- a hash of its name and input: its id means no other (G3)
    PRIMARY KEY (number, id)
);

CREATE INDEX updates_open ON updates (number) WHERE answer IS NULL;
CREATE INDEX updates_expiring ON updates (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Queries of those who do not have the code: taken by one who has it, and removed with their answer.
CREATE TABLE questions (
    id               TEXT COLLATE "C" PRIMARY KEY,
    number           BIGINT NOT NULL,
    name             TEXT COLLATE "C" NOT NULL,
    input            BYTEA NOT NULL,
    expires_at_ms    BIGINT NOT NULL,
    taken_by         TEXT COLLATE "C",                      -- a worker's key; null: no worker has taken it yet
    answer           BYTEA
);

CREATE INDEX questions_waiting ON questions (number) WHERE taken_by IS NULL;

CREATE TABLE workers (
    key              TEXT COLLATE "C" PRIMARY KEY,
    state            TEXT COLLATE "C" NOT NULL,
    token            BIGINT NOT NULL,
    deadline_ms      BIGINT NOT NULL,
    lease_ms         BIGINT NOT NULL,
    host             BYTEA NOT NULL,
    queues           TEXT COLLATE "C" NOT NULL,
    build            TEXT COLLATE "C" NOT NULL,
    registered_at_ms BIGINT NOT NULL,
    slots            BIGINT NOT NULL                        -- how many bodies it runs at once
);

-- Committed groups. A group that was split has several rows. A writer that lost its connection at a commit inserts a void
-- row in its place, or finds the row of the commit: from then on the outcome is settled.
CREATE TABLE commits (
    id               BIGINT NOT NULL,
    part             BIGINT NOT NULL,
    at_ms            BIGINT NOT NULL,
    is_void          BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (id, part)
);

CREATE INDEX commits_by_age ON commits (at_ms);

-- One row. The clock's high-water mark (W9): a store's time never goes back, whatever the machine's clock does.
CREATE TABLE clock (now_ms BIGINT NOT NULL);
INSERT INTO clock VALUES (0);
