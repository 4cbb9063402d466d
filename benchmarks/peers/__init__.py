"""Workloads of other engines, each run by an interpreter that has the engine installed."""
