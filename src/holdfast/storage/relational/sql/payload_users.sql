-- Read inside the write transaction: every stored value of an instance that may refer to a large payload.
SELECT input FROM instances WHERE number = ?1
UNION ALL SELECT outcome FROM instances WHERE number = ?1
UNION ALL SELECT events FROM history WHERE number = ?1
UNION ALL SELECT event FROM inbox WHERE number = ?1
UNION ALL SELECT input FROM attempts WHERE number = ?1
UNION ALL SELECT details FROM attempts WHERE number = ?1
UNION ALL SELECT failure FROM attempts WHERE number = ?1
UNION ALL SELECT value FROM kept WHERE number = ?1
UNION ALL SELECT answer FROM updates WHERE number = ?1
