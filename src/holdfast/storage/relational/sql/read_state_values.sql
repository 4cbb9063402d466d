-- A read: the key-values of one instance as of one moment, in the order of their keys.
SELECT key, value FROM kept WHERE number = ? ORDER BY key
