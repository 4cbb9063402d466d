-- The first schema. Later migrations add tables and columns, and remove nothing that the release before them uses.
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
    owner           TEXT,                               -- a worker's key; null: no worker owns it (G2)
    claimable_at_ms INTEGER,                            -- if unowned, the time from which it is claimable; null: never
    stamp_ms        INTEGER NOT NULL,                   -- time of the last applied message (G10)
    input           BLOB    NOT NULL,
    input_hash      BLOB    NOT NULL,
    outcome         BLOB,
    blocked         TEXT,                               -- the reason why it is blocked (G12)
    blocked_by      TEXT,                               -- the builds that cannot run it, a JSON list
    created_at_ms   INTEGER NOT NULL,
    closed_at_ms    INTEGER,
    losses          INTEGER NOT NULL DEFAULT 0,         -- owners lost while they ran its code, since its last turn (G12)
    waits           TEXT,                               -- the events that its code waits for, a JSON list (G6)
    mail            INTEGER NOT NULL DEFAULT 0,         -- number of events in its inbox
    event_policy    TEXT,                               -- what happens to events without a wait; null: kept
    mailbox_limit   INTEGER,                            -- the limit of kept events; null: the default
    superseded_at_ms INTEGER,                           -- when a new instance took its id; null: it has the id
    deadline_at_ms  INTEGER,                            -- its deadline; null: none
    grace_ms        INTEGER,                            -- time for clean-up after the deadline; null: not set
    expires_at_ms   INTEGER,                            -- its deadline; after it was enforced, the end of the grace
    parent          INTEGER,                            -- the number of the instance whose code started it
    parent_execution INTEGER,                           -- the execution that started it; only that one gets the answer (G4)
    parent_step     INTEGER,                            -- the number of the child in that execution
    parent_close    TEXT,                               -- what happens to it when that execution ends
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

-- The versions of flows on which instances run: an instance keeps its version.
CREATE TABLE flows (
    hash        TEXT    PRIMARY KEY,                        -- of the definition
    name        TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    definition  BLOB    NOT NULL,
    saved_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Ended executions whose children are not all closed yet; large numbers of children are closed in batches (C1).
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
    name      TEXT                                      -- an event kept for a later wait (G6); empty: an update
);

CREATE INDEX inbox_of_instance ON inbox (number);

-- Ids of delivered messages (G6): delivering one again changes nothing.
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
    WHERE owner IS NOT NULL AND closed_at_ms IS NULL;   -- its own for SQLite, which is built for each written row
CREATE INDEX attempts_expiring ON attempts (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

CREATE TABLE payloads (
    number    INTEGER NOT NULL,
    reference TEXT    NOT NULL,                         -- a hash of the data
    data      BLOB    NOT NULL,
    PRIMARY KEY (number, reference)
);

CREATE TABLE kept (
    number INTEGER NOT NULL,                            -- not tied to an execution: continue-as-new keeps it (G4)
    key    TEXT    NOT NULL,                            -- empty: the value of hf.set_status
    value  BLOB    NOT NULL,
    PRIMARY KEY (number, key)
) WITHOUT ROWID;

-- Updates and their answers, kept as long as the instance, so that a repeated id gets
-- the same answer. A rejected update is kept until its sender has read the answer.
CREATE TABLE updates (
    number        INTEGER NOT NULL,                     -- not tied to an execution: the next one may answer (G4)
    id            TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    answer        BLOB,                                 -- null while it is open
    expires_at_ms INTEGER,                              -- of a rejected update
    asked         BLOB    NOT NULL,                     -- hash of name and input: an id names one update (G3)
    PRIMARY KEY (number, id)
) WITHOUT ROWID;

CREATE INDEX updates_open ON updates (number) WHERE answer IS NULL;
CREATE INDEX updates_expiring ON updates (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Queries of clients without the code: a worker that has the code claims and answers them.
CREATE TABLE questions (
    id            TEXT PRIMARY KEY,
    number        INTEGER NOT NULL,
    name          TEXT    NOT NULL,
    input         BLOB    NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    taken_by      TEXT,                                 -- a worker's key; null: not claimed
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
    slots            INTEGER NOT NULL                   -- number of bodies that it runs at the same time
);

CREATE TABLE commits (
    id    INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL
);

-- One row: the high-water mark of the clock (W9). The time of a store never decreases, even if the machine's clock does.
CREATE TABLE clock (now_ms INTEGER NOT NULL);
INSERT INTO clock VALUES (0);
