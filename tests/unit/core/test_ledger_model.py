"""The ledger against a model that keeps plain lists: random legal and illegal steps, losses and duplicates."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core import ledger
from holdfast.core.ledger import Accepted, Leg1Verdict, Refused
from holdfast.errors import LedgerError


class LedgerAgainstLists(RuleBasedStateMachine):
    """The model remembers what happened; the ledger has to say the same with fifteen digits."""

    def __init__(self) -> None:
        super().__init__()
        self.value: int = ledger.SEED
        self.entries: list[str] = []
        self.concluded = False
        self.responses: list[str] = []
        self.applied: list[str] = []
        self.closed = False

    @rule(limit=st.integers(1, 9))
    def deliver_to_leg_1(self, limit: int) -> None:
        """A delivery, or a duplicate of one: the model cannot tell them apart either."""
        before = self.value
        self.value, verdict = ledger.enter_leg1(self.value, limit=limit)
        if self.concluded:
            expected = Leg1Verdict.ALREADY_CONCLUDED
        elif len(self.entries) >= limit:
            expected = Leg1Verdict.EXHAUSTED
        else:
            expected = Leg1Verdict.RERUN if self.entries else Leg1Verdict.FIRST_RUN
            self.entries.append("entered")
        assert verdict is expected
        if not verdict.runs:
            assert self.value == before

    @rule()
    def conclude(self) -> None:
        legal = bool(self.entries) and not self.concluded
        try:
            self.value = ledger.conclude_leg1(self.value)
        except LedgerError:
            assert not legal
        else:
            assert legal
            self.concluded = True

    @rule()
    def respond(self) -> None:
        before = self.value
        self.value, verdict = ledger.enter_leg2(self.value)
        if self.closed:
            assert verdict is Refused.CLOSED
        elif not self.concluded:
            assert verdict is Refused.TOO_EARLY
        else:
            assert verdict == Accepted(thread_index=len(self.responses))
            self.responses.append("response")
        if isinstance(verdict, Refused):
            assert self.value == before

    @rule(final=st.booleans())
    def apply(self, final: bool) -> None:
        legal = len(self.applied) < len(self.responses) and not (final and self.closed)
        try:
            self.value = ledger.exit_leg2(self.value, final=final)
        except LedgerError:
            assert not legal
        else:
            assert legal
            self.applied.append("final" if final else "pending")
            self.closed = self.closed or final

    @precondition(lambda self: not self.closed)
    @rule()
    def crash_before_the_commit(self) -> None:
        """What was computed and not kept changes nothing: the functions have no memory."""
        ledger.enter_leg1(self.value)
        ledger.enter_leg2(self.value)

    @invariant()
    def the_digits_tell_what_happened(self) -> None:
        reading = ledger.read_ledger(self.value)
        assert reading.leg1_entries == len(self.entries)
        assert reading.leg1_concluded == self.concluded
        assert reading.leg2_closed == self.closed
        assert reading.responses_entered == len(self.responses)
        assert reading.unapplied_responses == len(self.responses) - len(self.applied)
        assert len(reading.text) == 15
        assert 0 <= self.value < 2**53
        assert reading.sentence.endswith(".")


TestLedgerAgainstLists = LedgerAgainstLists.TestCase
