-- Read inside the write transaction that ends a lease: no group in this worker's name is under way (W6).
-- Waits for groups of this worker, which hold a share of its row; those that come later see that it is lost.
SELECT key FROM workers WHERE key = ?
FOR UPDATE
