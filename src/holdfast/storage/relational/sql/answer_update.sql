-- Part of a guarded turn (G11). An update that has an answer keeps it.
UPDATE updates SET state = ?3, answer = ?4, expires_at_ms = ?5 WHERE number = ?1 AND id = ?2 AND answer IS NULL
