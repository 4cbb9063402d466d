"""Finds the activity that a caller names: by its name, by the number of its call, or by the node of a flow.

``charge`` is the only open call of that name, ``charge#2`` the second call of it in the order of the history. In a flow
the node of an activity is its name, too; the items and rounds of a node are calls of it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.authoring.validation import checked_name
from holdfast.client.views.steps import StepReport
from holdfast.errors import ActivityClosed, ActivityNotFound

SEPARATOR: Final = "#"
MOST_NAMES: Final = 10
"""Names that a message lists."""


def find_activity(steps: Iterable[StepReport], given: str, instance_id: str) -> StepReport:
    """The open activity that `given` names. `ActivityNotFound` or `ActivityClosed` if there is none."""
    text = checked_name(given, "an activity")
    activities = [step for step in steps if step.recorded.kind == "activity"]
    calls = _calls_of(activities, text)
    if calls:
        return _only_open(calls, text, instance_id)
    name, separator, count = text.rpartition(SEPARATOR)
    calls = _calls_of(activities, name) if separator and count.isascii() and count.isdecimal() else []
    if not calls:
        raise ActivityNotFound(f"{instance_id!r} has no activity {text!r}; {_open_names(activities)}")
    place = int(count) if len(count) <= len(str(len(calls))) else 0
    if not 1 <= place <= len(calls):
        raise ActivityNotFound(f"{instance_id!r} has called {name!r} {len(calls)} times, so there is no {text!r}")
    if not calls[place - 1].recorded.is_open:
        raise ActivityClosed(f"{text!r} of {instance_id!r} is {calls[place - 1].state_word}, so it cannot be cancelled")
    return calls[place - 1]


def open_names(steps: Iterable[StepReport]) -> list[str]:
    """The names by which the open activities can be found, each by its shortest."""
    activities = [step for step in steps if step.recorded.kind == "activity"]
    found: list[str] = []
    for name in dict.fromkeys(step.recorded.node or step.recorded.name for step in activities):
        numbers = [number for number, step in enumerate(_calls_of(activities, name), 1) if step.recorded.is_open]
        found += [name] if len(numbers) == 1 else [f"{name}{SEPARATOR}{number}" for number in numbers]
    return found


def _calls_of(activities: Sequence[StepReport], name: str) -> list[StepReport]:
    """The calls of a name, oldest first. The nodes of a flow go before activities of the same name."""
    of_node = [step for step in activities if step.recorded.node == name]
    return of_node or [step for step in activities if step.recorded.name == name]


def _only_open(calls: Sequence[StepReport], name: str, instance_id: str) -> StepReport:
    numbered = [(number, step) for number, step in enumerate(calls, start=1) if step.recorded.is_open]
    if not numbered:
        raise ActivityClosed(f"{name!r} of {instance_id!r} is {calls[-1].state_word}, so it cannot be cancelled")
    if len(numbered) > 1:
        names = _listed(f"{name}{SEPARATOR}{number}" for number, _ in numbered)
        raise ActivityNotFound(f"{instance_id!r} has several open calls of {name!r}: name one of {names}")
    return numbered[0][1]


def _open_names(activities: Sequence[StepReport]) -> str:
    names = dict.fromkeys(step.recorded.node or step.recorded.name for step in activities if step.recorded.is_open)
    return f"open are {_listed(names)}" if names else "none is open"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    return ", ".join(every[:MOST_NAMES]) + more
