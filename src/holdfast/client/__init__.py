"""The public objects of a program: `connect`, `Client`, `Engine`, `Worker` and `Handle`, and the parts they share."""
