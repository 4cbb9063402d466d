-- Read inside the write transaction that ends a lease: no group in this worker's name is under way (W6). What was judged of
-- its loss before stands (G12).
SELECT state, loss FROM workers WHERE key = ?
