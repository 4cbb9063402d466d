"""Simulation: several workers and clients around one store in one process, with simulated time and seeded order.

The same seed gives the same run, crash for crash and commit for commit, so a failing seed reproduces its failure.
"""
