-- Read inside the write transaction that ends a lease: no group in this worker's name is being committed (W6). An earlier
-- verdict on its loss stays (G12).
SELECT state, loss FROM workers WHERE key = ?
