"""``hf.Retention``: how long the closed instances of a workflow are kept (R30)."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.authoring.validation import Duration, checked_duration_ms, checked_integer
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.retention import DeletionRules, StateRule
from holdfast.errors import InvalidOption

Age = Duration | str
"""Seconds, a timedelta, or a text such as ``"30d"`` or ``"1d12h"``."""

UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_PART: Final = r"(\d{1,9}(?:\.\d{1,9})?)(ms|[smhdw])"
_TEXT: Final = re.compile(rf"(?:{_PART})+")


def checked_age_ms(given: object, what: str) -> int:
    """An age (`Age`) in milliseconds; `InvalidOption` for anything else."""
    if isinstance(given, str):
        text = given.strip()
        if not _TEXT.fullmatch(text):
            raise InvalidOption(f"{what} must be seconds, a timedelta or a text such as '30d' or '12h', not {given!r}")
        given = sum(float(number) * UNITS[unit] for number, unit in re.findall(_PART, text))
    elif isinstance(given, bool) or not isinstance(given, int | float | timedelta):
        raise InvalidOption(f"{what} must be seconds, a timedelta or a text such as '30d' or '12h', not {given!r}")
    return checked_duration_ms(given, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the closed instances of a workflow are kept: ``hf.Retention(completed="30d", failed="90d")``

    A family, which is a root with all its descendants, is deleted as a whole when every member is closed and the
    youngest end is older than the age of the root's final state. A state without an age is kept. `keep_last` keeps so
    many of the newest of each state, whatever their age; alone, without an age, it applies to every state. Executions
    before a `continue_as_new` of an open instance are deleted at the age of `completed`. The attribute
    ``hf.attributes["keep"] = True`` keeps a family. ``hf.Retention()`` keeps everything.
    """

    completed: Age | None = None
    failed: Age | None = None
    cancelled: Age | None = None
    terminated: Age | None = None
    keep_last: int | None = None

    def __post_init__(self) -> None:
        self.rules()

    def rules(self) -> DeletionRules:
        """The rules of the core. Values out of range raise `InvalidOption`."""
        keep_last = 0 if self.keep_last is None else checked_integer(self.keep_last, "Retention(keep_last)", least=0)
        given: dict[InstanceState, Age | None] = {
            InstanceState.COMPLETED: self.completed,
            InstanceState.FAILED: self.failed,
            InstanceState.CANCELLED: self.cancelled,
            InstanceState.TERMINATED: self.terminated,
        }
        ages = {
            state: checked_age_ms(age, f"Retention({state.lower()})") for state, age in given.items() if age is not None
        }
        if not ages and self.keep_last is not None:
            ages = dict.fromkeys(sorted(INSTANCE_FINAL), 0)
        return DeletionRules(
            by_state={state: StateRule(age_ms, keep_last) for state, age_ms in ages.items()},
            executions_ms=ages.get(InstanceState.COMPLETED) if self.completed is not None else None,
        )


def checked_retention(retention: object) -> Retention | None:
    """The option `retention`, checked."""
    if retention is not None and not isinstance(retention, Retention):
        raise InvalidOption(f"retention takes hf.Retention(completed='30d', ...), not {retention!r}")
    return retention
