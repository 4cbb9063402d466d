-- A read: how many children of an instance are in which state.
SELECT state, count(*) FROM instances WHERE parent = ? GROUP BY state
