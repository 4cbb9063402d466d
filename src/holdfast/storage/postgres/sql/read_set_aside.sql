-- A read: turns of earlier executions whose events contain a text, newest first. The reader decodes them (G6).
SELECT execution, events FROM history
WHERE number = ? AND execution >= ? AND execution < ? AND position(?::bytea IN events) > 0
ORDER BY execution DESC, turn DESC LIMIT ?
