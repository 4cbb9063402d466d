-- The first schema. Later migrations add; they take nothing away that the release before them uses.
-- oldest: 1

CREATE TABLE instances (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused, so an old fence can never fit again (G1)
    id              TEXT    NOT NULL,
    workflow        TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    execution       INTEGER NOT NULL,
    turn            INTEGER NOT NULL,
    fence           INTEGER NOT NULL,
    owner           TEXT,                               -- a worker's key; null: no worker has it in memory (G2)
    claimable_at_ms INTEGER,                            -- when unowned: when it has something to do; null: never
    stamp_ms        INTEGER NOT NULL,                   -- the time of the last message applied (G10)
    input           BLOB    NOT NULL,
    input_hash      BLOB    NOT NULL,
    outcome         BLOB,
    blocked         TEXT,                               -- why it is parked (G12)
    blocked_by      TEXT,                               -- the builds that could not go on with it, a JSON list
    created_at_ms   INTEGER NOT NULL,
    closed_at_ms    INTEGER,
    losses          INTEGER NOT NULL DEFAULT 0,         -- owners lost while they ran its code, since its last turn (G12)
    waits           TEXT,                               -- the events that its code waits for, a JSON list (G6)
    mail            INTEGER NOT NULL DEFAULT 0,         -- how many events are in its inbox
    event_policy    TEXT,                               -- the policy for events without a wait; null: kept
    mailbox_limit   INTEGER,                            -- how many are kept; null: the usual number
    superseded_at_ms INTEGER,                           -- when its id was given to a new instance; null: it has it
    deadline_at_ms  INTEGER,                            -- until when it has to end; null: it has no deadline
    grace_ms        INTEGER,                            -- for its clean-up after that; null: it is not decided yet
    expires_at_ms   INTEGER,                            -- its deadline, and once that was acted upon the end of its grace
    parent          INTEGER,                            -- the number of the instance whose code started it
    parent_execution INTEGER,                           -- the execution of it that did: only that one is answered (G4)
    parent_step     INTEGER,                            -- the number of the child in that execution
    parent_close    TEXT,                               -- what the end of that execution does to it
    collation_key   TEXT                                -- of a flow: one digit for each of its activities (K1)
);

CREATE INDEX instances_claimable ON instances (workflow, claimable_at_ms) WHERE claimable_at_ms IS NOT NULL;
CREATE UNIQUE INDEX instances_current ON instances (id) WHERE superseded_at_ms IS NULL;  -- G3: an id means one instance
CREATE INDEX instances_earlier ON instances (id) WHERE superseded_at_ms IS NOT NULL;
CREATE INDEX instances_blocked ON instances (workflow) WHERE state = 'BLOCKED';
CREATE INDEX instances_suspected ON instances (owner, claimable_at_ms) WHERE losses >= 2;  -- G12: tried one at a time
CREATE INDEX instances_expiring ON instances (expires_at_ms) WHERE expires_at_ms IS NOT NULL AND closed_at_ms IS NULL;
CREATE INDEX instances_owned ON instances (owner) WHERE owner IS NOT NULL;
CREATE INDEX instances_children ON instances (parent, number) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX instances_steps ON instances (parent, parent_execution, parent_step) WHERE parent IS NOT NULL;
CREATE INDEX instances_open_children ON instances (parent, parent_execution)
    WHERE parent IS NOT NULL AND closed_at_ms IS NULL;

-- Flows as they were when instances were started with them: an instance stays on its version.
CREATE TABLE flows (
    hash        TEXT    PRIMARY KEY,                        -- of the definition
    name        TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    definition  BLOB    NOT NULL,
    saved_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Executions that have ended, and whose children still have to learn it: what is left of a large family (C1).
CREATE TABLE closings (
    number    INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    how       TEXT    NOT NULL,
    PRIMARY KEY (number, execution)
) WITHOUT ROWID;

CREATE TABLE history (
    number    INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    turn      INTEGER NOT NULL,
    events    BLOB    NOT NULL,
    PRIMARY KEY (number, execution, turn)
);

CREATE TABLE inbox (
    row       INTEGER PRIMARY KEY AUTOINCREMENT,
    number    INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    stamp_ms  INTEGER NOT NULL,
    event     BLOB    NOT NULL,
    name      TEXT                                      -- of an event, which stays until it is awaited (G6); empty: an update
);

CREATE INDEX inbox_of_instance ON inbox (number);

-- The ids of messages that were taken (G6): the same one twice changes nothing.
CREATE TABLE received (
    number INTEGER NOT NULL,
    id     TEXT    NOT NULL,
    PRIMARY KEY (number, id)
) WITHOUT ROWID;

CREATE TABLE timers (
    number    INTEGER NOT NULL,
    execution INTEGER NOT NULL,
    timer     INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    PRIMARY KEY (number, execution, timer)
);

CREATE TABLE attempts (
    number          INTEGER NOT NULL,
    execution       INTEGER NOT NULL,
    activity        INTEGER NOT NULL,
    dimension       TEXT    NOT NULL DEFAULT '',
    attempt         INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    queue           TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    ledger          INTEGER NOT NULL,
    owner           TEXT,
    input           BLOB    NOT NULL,
    options         BLOB    NOT NULL,
    available_at_ms INTEGER NOT NULL,
    scheduled_at_ms INTEGER NOT NULL,
    started_at_ms   INTEGER,
    closed_at_ms    INTEGER,
    expires_at_ms   INTEGER,                            -- the nearest of its deadlines (A5)
    heartbeat_at_ms INTEGER,
    details         BLOB,
    failures        INTEGER NOT NULL DEFAULT 0,
    losses          INTEGER NOT NULL DEFAULT 0,
    failure         BLOB,
    PRIMARY KEY (number, execution, activity, dimension, attempt)
);

CREATE INDEX attempts_ready ON attempts (queue, available_at_ms, name) WHERE state = 'READY';
CREATE INDEX attempts_held ON attempts (owner)          -- claimed or running: a list of states here would be a table of
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL;   -- its own for SQLite, built again for each row that is written
CREATE INDEX attempts_expiring ON attempts (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

CREATE TABLE payloads (
    number    INTEGER NOT NULL,
    reference TEXT    NOT NULL,                         -- a hash of the data
    data      BLOB    NOT NULL,
    PRIMARY KEY (number, reference)
);

CREATE TABLE kept (
    number INTEGER NOT NULL,                            -- not of one execution: continue-as-new carries it over (G4)
    key    TEXT    NOT NULL,                            -- empty: the status that the code set
    value  BLOB    NOT NULL,
    PRIMARY KEY (number, key)
) WITHOUT ROWID;

-- What was sent to change a workflow, and what came of it: kept as long as its instance, so that the same id is answered
-- the same again. One that was rejected is only kept until its sender has read it.
CREATE TABLE updates (
    number        INTEGER NOT NULL,                     -- not of one execution: the next one may answer (G4)
    id            TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    answer        BLOB,                                 -- null while it is open
    expires_at_ms INTEGER,                              -- of one that was rejected
    asked         BLOB    NOT NULL,                     -- a hash of its name and input: its id means no other (G3)
    PRIMARY KEY (number, id)
) WITHOUT ROWID;

CREATE INDEX updates_open ON updates (number) WHERE answer IS NULL;
CREATE INDEX updates_expiring ON updates (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Queries of those who do not have the code: taken by one who has it, and removed with their answer.
CREATE TABLE questions (
    id            TEXT PRIMARY KEY,
    number        INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    input         BLOB    NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    taken_by      TEXT,                                 -- a worker's key; null: no worker has taken it yet
    answer        BLOB
) WITHOUT ROWID;

CREATE INDEX questions_waiting ON questions (number) WHERE taken_by IS NULL;

CREATE TABLE workers (
    key              TEXT PRIMARY KEY,
    state            TEXT    NOT NULL,
    token            INTEGER NOT NULL,
    deadline_ms      INTEGER NOT NULL,
    lease_ms         INTEGER NOT NULL,
    host             BLOB    NOT NULL,
    queues           TEXT    NOT NULL,
    build            TEXT    NOT NULL,
    registered_at_ms INTEGER NOT NULL,
    slots            INTEGER NOT NULL                   -- how many bodies it runs at once
);

CREATE TABLE commits (
    id    INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL
);

-- One row. The clock's high-water mark (W9): a store's time never goes back, whatever the machine's clock does.
CREATE TABLE clock (now_ms INTEGER NOT NULL);
INSERT INTO clock VALUES (0);
