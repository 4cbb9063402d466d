"""Attempts that run in this worker: slots, bodies, streamed values, threads and child processes."""
