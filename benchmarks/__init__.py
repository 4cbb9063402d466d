"""Benchmarks: Holdfast beside the bare limit of the same machine, in one run. ``make bench`` runs them."""
