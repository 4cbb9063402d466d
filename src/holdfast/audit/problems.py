"""What an audit can find: a rule that is broken, where, and in which way."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_PROBLEMS: Final = 100_000
"""Problems that a report keeps: the memory of an audit is bounded, whatever a store has suffered."""
LONGEST_TEXT: Final = 1_000
"""Characters of one problem."""


class Rule(StrEnum):
    """The invariants that can be checked from the tables. The value is the name that people and programs see."""

    FILE_SOUND = "file-sound"
    """SQLite finds its own file in order. PostgreSQL looks after its own."""
    ROWS_READABLE = "rows-readable"
    """Every row holds the types of its columns, and words that are states."""
    ROWS_BELONG = "rows-belong"
    """Every row hangs on an instance that is there, and on an execution that it has."""
    HISTORY_GAP_FREE = "history-gap-free"
    """Turns are numbered 0 to n-1, and the instance says n (G9)."""
    EVENTS_READABLE = "events-readable"
    """Every recorded or waiting event can be decoded."""
    STARTED_ONCE = "started-once"
    """The first event is the start, and there is one (G3)."""
    ONE_CURRENT = "one-current"
    """Of the instances of one id the newest has it, and those before it are closed (G3)."""
    TERMINAL_LAST = "terminal-last"
    """The end is recorded once, as the last event, exactly if the instance is closed, and says the same (G11)."""
    ONE_SUCCESSOR = "one-successor"
    """An execution before the last was continued as new, and the next one began with what it gave (G4)."""
    ONE_OUTCOME = "one-outcome"
    """An activity or a timer has at most one outcome, and was begun before it."""
    REAL_RESULT = "real-result"
    """The recorded outcome of an activity is that of one attempt that really ended so."""
    ATTEMPTS_COMPLETE = "attempts-complete"
    """A scheduled activity has attempts 1 to n, all but the last ended, and its answer is not lost."""
    LEDGER_AGREES = "ledger-agrees"
    """Ledger and state of an attempt agree (A8)."""
    NOTHING_PENDING = "nothing-pending"
    """A closed instance has no messages, timers or attempts that wait or run (C5)."""
    TIMERS_AGREE = "timers-agree"
    """The open timers are those that the history started and did not end, with the same due times (G8)."""
    TIMER_NOT_EARLY = "timer-not-early"
    """No timer fired before it was due."""
    DEADLINE_KEPT = "deadline-kept"
    """An open instance with a deadline is due then, or at the end of its grace; nobody was asked to end before it."""
    OWNERS_KNOWN = "owners-known"
    """An owner is a registered worker."""
    CLAIMABLE_AGREES = "claimable-agrees"
    """An instance is claimable exactly when nobody owns it and it has something to do (G2, G5)."""
    UPDATES_AGREE = "updates-agree"
    """An update is accepted once, ends before its execution does, and its sender is told what was recorded (G11)."""
    PAYLOADS_THERE = "payloads-there"
    """Every payload that is named by its reference is there and unchanged."""
    CHILDREN_TIED = "children-tied"
    """The children of an execution are those that its history started, with their ids, and know it (G11)."""
    CHILDREN_ANSWER = "children-answer"
    """A child that has ended told the execution that started it, once, how; one that has not told nothing (G4, G5)."""
    CHILDREN_CLOSED = "children-closed"
    """An execution that has ended left no child behind, unless it was to, or the rest is being gone through (A9)."""
    FLOW_KEPT = "flow-kept"
    """The definition that the instance of a flow stays with is there, and is the one that its hash names."""
    KEY_AGREES = "key-agrees"
    """The stored key of a flow is what its history adds up to, and each digit what its node really did (K2, K3, K8)."""
    KEY_COMPLETE = "key-complete"
    """A flow that has ended by itself has a complete key, an open one has not; only caught failures complete (K5)."""


Finding = tuple[Rule, str]
"""A rule that one instance breaks, and how."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule. `instance` is empty when the store as a whole is concerned."""

    instance: str
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.instance or 'the store'}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what was found."""

    instances: int
    turns: int
    attempts: int
    problems: tuple[Problem, ...]
    left_out: int = 0
    """Problems beyond the first `MOST_PROBLEMS`, which are counted and not kept."""
