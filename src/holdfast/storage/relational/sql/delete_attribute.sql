-- Part of a guarded turn: the attribute was deleted, or its next value follows.
DELETE FROM attributes WHERE number = ? AND name = ?
