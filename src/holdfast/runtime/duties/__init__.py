"""Background duties of a worker, one loop or part of a loop in each file. Workers do them concurrently (C1)."""
