"""What many machines cost: the workloads on PostgreSQL, and those that only make sense there."""
