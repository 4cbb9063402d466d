-- A read: every worker that is known, dead ones among them.
SELECT key, state FROM workers ORDER BY key
