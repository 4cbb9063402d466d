"""Checks a store against the rules of the engine, from its raw tables, as ``holdfast verify`` does.

``audit(store)`` opens a file or a database read-only, takes one snapshot and returns a list of problems. An empty list
means that every invariant holds that can be checked in the tables. Tests call it after every crash.
"""

from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Problem, Report, Rule

__all__ = ["Problem", "Report", "Rule", "audit", "inspect"]
