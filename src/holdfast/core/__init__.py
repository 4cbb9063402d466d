"""The pure core: no I/O, no clock, no randomness, no logging. It decides; the shell acts.

Functions here are synchronous, total and deterministic. They take everything they decide upon as arguments and
return values: new digits, verdicts, orders. The import rules in ``pyproject.toml`` keep it that way.
"""
