"""What makes the core's decisions happen: turns, attempts, leases and commits around one store."""
