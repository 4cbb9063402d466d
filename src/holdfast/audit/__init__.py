"""The audit of a store against the rules, from its raw tables: what ``holdfast verify`` runs.

``audit(store)`` opens a file or a database read-only, takes one snapshot and gives back a list of problems. An empty
list means that every invariant that can be seen in the tables holds. Tests call it after every crash.
"""

from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Problem, Report, Rule

__all__ = ["Problem", "Report", "Rule", "audit", "inspect"]
