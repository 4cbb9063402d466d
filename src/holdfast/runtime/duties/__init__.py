"""Background duties of a worker. Any worker can do them, at the same time as others (C1)."""
