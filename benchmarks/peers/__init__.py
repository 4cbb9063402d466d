"""Holdfast beside other engines: the same workloads, driven by the same code. ``make bench-peers`` runs them.

`workloads`, `crash`, `sample` and `engines` run in the interpreter of the engine that they measure, so they import
nothing of Holdfast and of each other's libraries.
"""
