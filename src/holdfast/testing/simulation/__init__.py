"""A world in one process: several workers and clients around one store, a clock that jumps, an order made by a seed.

The same seed gives the same run, crash for crash and commit for commit, so a failure is repeated by its number.
"""
