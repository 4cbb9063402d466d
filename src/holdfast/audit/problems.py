"""The findings of an audit: rules, problems and the report."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_PROBLEMS: Final = 100_000
"""Problems in a report, which bounds the memory of an audit; more are counted."""
LONGEST_TEXT: Final = 1_000
"""Characters of one problem."""


class Rule(StrEnum):
    """The invariants that can be checked from the tables. The value is the name in the output."""

    FILE_SOUND = "file-sound"
    """SQLite finds no damage in its file. A PostgreSQL server checks its own files."""
    ROWS_READABLE = "rows-readable"
    """Every row holds the types of its columns, and known states."""
    ROWS_BELONG = "rows-belong"
    """Every row belongs to an existing instance, and to one of its executions."""
    HISTORY_GAP_FREE = "history-gap-free"
    """Turns are numbered from 0 to n-1, and the instance counts n (G9)."""
    EVENTS_READABLE = "events-readable"
    """Every event in a history or an inbox can be decoded."""
    STARTED_ONCE = "started-once"
    """The first event is the start, and there is one start (G3)."""
    ONE_CURRENT = "one-current"
    """The newest instance of an id has it, and the earlier ones are closed (G3)."""
    TERMINAL_LAST = "terminal-last"
    """A closed instance has its end once, as the last event, with the stored outcome; an open one has none (G11)."""
    ONE_SUCCESSOR = "one-successor"
    """An execution before the last was continued as new, and the next one has the input it gave (G4)."""
    ONE_OUTCOME = "one-outcome"
    """An activity, timer, wait or child has at most one outcome, after its beginning."""
    REAL_RESULT = "real-result"
    """The recorded outcome of an activity is that of its last attempt."""
    ATTEMPTS_COMPLETE = "attempts-complete"
    """A scheduled activity has attempts 1 to n, all but the last ended, and no answer is lost."""
    LEDGER_AGREES = "ledger-agrees"
    """Ledger and state of an attempt agree (A8)."""
    OFFERS_AGREE = "offers-agree"
    """An external attempt that is open has one current offer, whose entry and claim agree with its state (C4, L7)."""
    ROWS_HANDLED = "rows-handled"
    """The answers to requests and reports are complete, and no report waits for an attempt that has ended (C2, L10)."""
    NOTHING_PENDING = "nothing-pending"
    """A closed instance has no messages, no timers, and no attempts that wait or run (C5)."""
    TIMERS_AGREE = "timers-agree"
    """The open timers are those that the history started and did not end, with the same due times (G8)."""
    TIMER_NOT_EARLY = "timer-not-early"
    """No timer fired before it was due."""
    DEADLINE_KEPT = "deadline-kept"
    """An open instance with a deadline expires then or after its grace, and no deadline took effect early."""
    PAUSE_HOLDS = "pause-holds"
    """The READY attempts of a PAUSED instance are withheld, and no others (R20, R21)."""
    OWNERS_KNOWN = "owners-known"
    """An owner is a registered worker."""
    CLAIMABLE_AGREES = "claimable-agrees"
    """An instance is claimable exactly if it has no owner and something to do (G2, G5)."""
    ATTRIBUTES_AGREE = "attributes-agree"
    """An attribute has a value of its type, and the time of its instance, by which lists are ordered (F1)."""
    UPDATES_AGREE = "updates-agree"
    """An update is accepted once, ends before its execution does, and has the recorded answer (G11)."""
    PAYLOADS_THERE = "payloads-there"
    """Every payload with a reference exists, and the reference is its hash."""
    CHILDREN_TIED = "children-tied"
    """The children of an execution are those that its history started, with the same ids (G11)."""
    CHILDREN_ANSWER = "children-answer"
    """A child that ended has one answer in the execution that started it; an open child has none (G4, G5)."""
    CHILDREN_CLOSED = "children-closed"
    """An execution that ended left no open child, unless its policy allows it or children are being closed (A9)."""
    VERSION_KEPT = "version-kept"
    """The version of an instance is the one that the first turn of its execution recorded (R6)."""
    FLOW_KEPT = "flow-kept"
    """The version of the flow on which an instance runs exists, and has its hash."""
    KEY_AGREES = "key-agrees"
    """The stored key of a flow is the one of its history, and each digit agrees with its node (K2, K3, K8)."""
    KEY_COMPLETE = "key-complete"
    """Only a flow that ended by itself has a complete key, and none completed with an uncaught failure (K5)."""


Finding = tuple[Rule, str]
"""A broken rule, and how one instance breaks it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that an instance breaks; `instance` is empty for a problem of the whole store."""

    instance: str
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.instance or 'the store'}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of rows that were checked, and the problems."""

    instances: int
    turns: int
    attempts: int
    problems: tuple[Problem, ...]
    left_out: int = 0
    """The number of problems beyond the first `MOST_PROBLEMS`."""
