-- Read inside the write transaction that ends a lease: no group in this worker's name is under way (W6).
SELECT key FROM workers WHERE key = ?
