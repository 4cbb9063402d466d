-- Search (F): attributes, the type of the error of a failed instance, and the indexes of lists. Lists are in the order
-- of created_at_ms and number; each index ends with both (SQLite appends the number), so that a page needs no sorting.
-- oldest: 6

ALTER TABLE instances ADD COLUMN error TEXT;            -- the type of the error of a FAILED instance, without its module

CREATE INDEX instances_by_workflow ON instances (workflow, created_at_ms);
CREATE INDEX instances_by_state ON instances (state, created_at_ms)
    WHERE state <> 'COMPLETED' AND state <> 'RUNNING';      -- a start that runs at once, and its end, write nothing here
CREATE INDEX instances_unowned ON instances (created_at_ms)
    WHERE owner IS NULL AND closed_at_ms IS NULL;           -- with those of instances_owned, every open instance
CREATE INDEX instances_by_closed ON instances (closed_at_ms) WHERE closed_at_ms IS NOT NULL;

-- One row for each value; a list of texts has one for each text. Keys compare byte by byte as the values do.
CREATE TABLE attributes (
    number        INTEGER NOT NULL,                     -- not tied to an execution: continue-as-new keeps it (G4)
    name          TEXT    NOT NULL,
    position      INTEGER NOT NULL,                     -- in a list; otherwise 0
    type          TEXT    NOT NULL,
    value         TEXT    NOT NULL,                     -- the key of the value
    created_at_ms INTEGER NOT NULL,                     -- of the instance: the order of lists
    PRIMARY KEY (number, name, position)
) WITHOUT ROWID;

CREATE INDEX attributes_by_value ON attributes (name, value, created_at_ms, number);

-- Keys of this store. The one of cursors makes a cursor of another store, or a changed one, known.
CREATE TABLE secrets (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

INSERT INTO secrets VALUES ('cursors', randomblob(32));
