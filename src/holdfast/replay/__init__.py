"""Runs workflow code: a run with its parts, a deterministic asyncio event loop, and the determinism guard.

No module of this package does I/O or reads a clock. The same code, given the same inputs in the same order, takes
the same steps and starts the same timers, in any process and on every supported Python.
"""
