-- Part of a guarded turn or of a change by a client: the attribute was deleted, or its next value follows.
DELETE FROM attributes WHERE number = ? AND name = ?
