-- Read inside the write transaction: the queues of the attempts of an instance that are withheld.
SELECT DISTINCT queue FROM attempts WHERE number = ? AND (state || '') = 'READY' AND available_at_ms >= 1152921504606846976
