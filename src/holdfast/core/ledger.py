"""The activity ledger: fifteen digits that make every step of an attempt happen exactly once (L1-L12).

::

    d1 d2 d3 | E E E E E E | X X X X X X
     |  |  |         |            `-- responses that left leg 2 (their effects are recorded)
     |  |  |         `--------------- responses that entered leg 2
     |  |  `------------------------- 9: leg 2 open, 8: closed by a final response
     |  `---------------------------- 9: leg 1 not concluded, 8: an executor has it, durably
     `------------------------------- 9 minus the number of entries into leg 1

A ledger is a plain integer below 2**53, so it is exact in SQL, JSON and JavaScript. The functions here check the
digits, never the attempt's state; callers check the state first (L9). A refusing verdict comes with the value
unchanged; a call that no correct caller makes raises `LedgerError`.
"""

from enum import Enum
from typing import Final, NewType

import msgspec

from holdfast.errors import LedgerError

Ledger = NewType("Ledger", int)

LEG1_ENTRY: Final = 10**14
LEG1_CONCLUSION: Final = 10**13
LEG2_CLOSURE: Final = 10**12
RESPONSE_ENTRY: Final = 10**6
RESPONSE_EXIT: Final = 1

SEED: Final = Ledger(9 * LEG1_ENTRY + 9 * LEG1_CONCLUSION + 9 * LEG2_CLOSURE)
"""L1: the value in the commit that schedules the activity."""

UNTOUCHED: Final = 9
"""The value of each of the three status digits before its event."""
HAPPENED: Final = 8
"""The value of the second and third digits after their event."""

MAX_RESPONSES: Final = 999_999
"""L12: six digits count the responses; the next one would carry into the digit on the left."""
MAX_LEG1_ENTRIES: Final = 9
"""L8: the first digit can fall from 9 to 0 and not below."""
DEFAULT_LEG1_LIMIT: Final = 5
DIGITS: Final = 15


class Leg1Verdict(Enum):
    """The result of an entry into leg 1 (L7, L8)."""

    FIRST_RUN = "first run"
    RERUN = "rerun"
    ALREADY_CONCLUDED = "already concluded"
    EXHAUSTED = "exhausted"

    @property
    def runs(self) -> bool:
        """Whether the caller may run leg 1."""
        return self in (Leg1Verdict.FIRST_RUN, Leg1Verdict.RERUN)


class Accepted(msgspec.Struct, frozen=True):
    """The response counts. Its thread index is stored with it and never derived again (L11)."""

    thread_index: int


class Refused(Enum):
    """Why a response does not count. The value is unchanged."""

    TOO_EARLY = "too early"
    CLOSED = "closed"
    THREADS_EXHAUSTED = "threads exhausted"


Leg2Verdict = Accepted | Refused


class LedgerReading(msgspec.Struct, frozen=True):
    """The digits of a ledger, decoded."""

    value: Ledger
    leg1_entries: int
    leg1_concluded: bool
    leg2_closed: bool
    responses_entered: int
    responses_exited: int

    @property
    def text(self) -> str:
        """The fifteen digits, zero-padded."""
        return f"{self.value:0{DIGITS}d}"

    @property
    def unapplied_responses(self) -> int:
        """L14: responses in the instance's inbox that no turn has applied yet."""
        return self.responses_entered - self.responses_exited

    @property
    def sentence(self) -> str:
        """The meaning of the digits as an English sentence."""
        return _describe(self)


def enter_leg1(value: int, *, limit: int = DEFAULT_LEG1_LIMIT) -> tuple[Ledger, Leg1Verdict]:
    """Count an entry into leg 1: an attempt was claimed from its queue (L2, L7, L8)."""
    if not 1 <= limit <= MAX_LEG1_ENTRIES:
        raise LedgerError(f"the limit of leg 1 entries must be 1 to {MAX_LEG1_ENTRIES}, not {limit}")
    reading = read_ledger(value)
    if reading.leg1_concluded:
        return reading.value, Leg1Verdict.ALREADY_CONCLUDED
    if reading.leg1_entries >= limit:
        return reading.value, Leg1Verdict.EXHAUSTED
    verdict = Leg1Verdict.RERUN if reading.leg1_entries else Leg1Verdict.FIRST_RUN
    return Ledger(value - LEG1_ENTRY), verdict


def conclude_leg1(value: int) -> Ledger:
    """Conclude leg 1: an executor holds the attempt durably (L3)."""
    reading = read_ledger(value)
    if reading.leg1_concluded:
        raise LedgerError(f"ledger {reading.text}: leg 1 is concluded already")
    if not reading.leg1_entries:
        raise LedgerError(f"ledger {reading.text}: leg 1 cannot be concluded before it was entered")
    return Ledger(value - LEG1_CONCLUSION)


def enter_leg2(value: int) -> tuple[Ledger, Leg2Verdict]:
    """Count a response, or refuse it with a reason (L4, L9, L10, L12)."""
    reading = read_ledger(value)
    if reading.leg2_closed:
        return reading.value, Refused.CLOSED
    if not reading.leg1_concluded:
        return reading.value, Refused.TOO_EARLY
    if reading.responses_entered >= MAX_RESPONSES:
        return reading.value, Refused.THREADS_EXHAUSTED
    return Ledger(value + RESPONSE_ENTRY), Accepted(thread_index=reading.responses_entered)


def exit_leg2(value: int, *, final: bool) -> Ledger:
    """Count the exit of a response whose effects are recorded; a final one closes leg 2 (L5, L6).

    Responses that had entered before may still exit after the final one: the digits count responses and cannot tell
    them apart (L11). The agreement of ledger and state (A8) checks that they are applied in order.
    """
    reading = read_ledger(value)
    if not reading.unapplied_responses:
        raise LedgerError(f"ledger {reading.text}: no response has entered that has not exited")
    if not final:
        return Ledger(value + RESPONSE_EXIT)
    if reading.leg2_closed:
        raise LedgerError(f"ledger {reading.text}: leg 2 was closed by an earlier final response")
    return Ledger(value + RESPONSE_EXIT - LEG2_CLOSURE)


def read_ledger(value: int) -> LedgerReading:
    """Decode a ledger. A number that no sequence of events can produce raises `LedgerError`."""
    if not 0 <= value < 10**DIGITS:
        raise LedgerError(f"{value} is not a ledger: it must have at most {DIGITS} digits")
    status, counters = divmod(value, LEG2_CLOSURE)
    d1, legs = divmod(status, 100)
    d2, d3 = divmod(legs, 10)
    entered, exited = divmod(counters, RESPONSE_ENTRY)
    if reason := _why_unreachable(d1, d2, d3, entered, exited):
        raise LedgerError(f"{value:0{DIGITS}d} is not a ledger: {reason}")
    return LedgerReading(
        value=Ledger(value),
        leg1_entries=UNTOUCHED - d1,
        leg1_concluded=d2 == HAPPENED,
        leg2_closed=d3 == HAPPENED,
        responses_entered=entered,
        responses_exited=exited,
    )


def _why_unreachable(d1: int, d2: int, d3: int, entered: int, exited: int) -> str | None:
    if d2 not in (HAPPENED, UNTOUCHED):
        return f"the second digit is 9 or 8, for leg 1 open or concluded, not {d2}"
    if d3 not in (HAPPENED, UNTOUCHED):
        return f"the third digit is 9 or 8, for leg 2 open or closed, not {d3}"
    if d2 == HAPPENED and d1 == UNTOUCHED:
        return "leg 1 cannot have been concluded without an entry"
    if d2 == UNTOUCHED and (entered or d3 == HAPPENED):
        return "leg 2 cannot have begun before leg 1 was concluded"
    if exited > entered:
        return f"{exited} responses cannot have exited when {entered} entered"
    if d3 == HAPPENED and not exited:
        return "leg 2 cannot have been closed without a response"
    return None


def _describe(reading: LedgerReading) -> str:
    entries = "once" if reading.leg1_entries == 1 else f"{reading.leg1_entries} times"
    if not reading.leg1_entries:
        return "Scheduled, not claimed yet."
    if not reading.leg1_concluded:
        lost = reading.leg1_entries - 1
        history = "" if not lost else f", {lost} of them lost before an executor had it"
        return f"Claimed {entries}{history}; no executor has it yet."
    start = f"An executor {'had' if reading.leg2_closed else 'has'} it (leg 1 was entered {entries})"
    if not reading.responses_entered:
        return f"{start}; no response so far."
    count = reading.responses_entered
    waiting = reading.unapplied_responses
    if count == 1:
        came = f"one response came, {'not yet applied' if waiting else 'applied'}"
    else:
        came = f"{count} responses came, {f'{waiting} still to be applied' if waiting else 'all applied'}"
    end = "a final one closed it" if reading.leg2_closed else "leg 2 is open"
    return f"{start}; {came}; {end}."
