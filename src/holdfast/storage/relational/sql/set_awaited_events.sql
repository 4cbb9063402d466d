-- Part of a guarded turn: what is waited for from here on, and how many events it took.
UPDATE instances SET waits = COALESCE(?1, waits), mail = mail - ?2 WHERE number = ?3
