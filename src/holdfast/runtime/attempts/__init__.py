"""Attempts of activities: slots, bodies in tasks, threads and processes, heartbeats and streamed values."""
