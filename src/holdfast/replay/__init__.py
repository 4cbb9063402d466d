"""Runs workflow code: a deterministic asyncio event loop, and what keeps the code upon it deterministic.

Nothing in here does I/O or reads a clock. The same code, fed with the same messages in the same order, takes
the same steps and starts the same timers, in any process and on every supported Python.
"""
