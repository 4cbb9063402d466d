-- Several versions of one workflow (R4-R9). An instance whose first turn has not chosen its version yet has '-' in
-- `version`; '' is the version of a workflow that names none. Earlier releases would run instances of versions that they
-- do not have, so they may not open the store.
-- oldest: 10

UPDATE instances SET version = '-' WHERE version = '' AND turn = 0 AND execution = 1 AND closed_at_ms IS NULL;

-- The keys by which workers claim: a backlog of a version that a worker lacks is not read by it.
DROP INDEX instances_claimable;
CREATE INDEX instances_claimable ON instances (workflow, version, claimable_at_ms) WHERE claimable_at_ms IS NOT NULL;
DROP INDEX instances_blocked;
CREATE INDEX instances_blocked ON instances (workflow, version) WHERE state = 'BLOCKED';
CREATE INDEX flows_by_name ON flows (name, version);

-- A JSON object: the versions of each workflow that is written as code; null: an older release registered the worker
ALTER TABLE workers ADD COLUMN versions TEXT;

DROP VIEW workflows;
CREATE VIEW workflows AS
SELECT
    id AS workflow_exec_id,
    workflow AS workflow_name,
    CAST(NULLIF(version, '-') AS TEXT) AS version,
    state,
    execution,
    collation_key,
    created_at_ms,
    closed_at_ms
FROM instances WHERE superseded_at_ms IS NULL;
