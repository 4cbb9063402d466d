"""What becomes of an update, for every state of its instance and whatever is known of its id (G3, G5, G7)."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.admission import EventVerdict
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.updates import MAX_OPEN_UPDATES, REFUSALS, STATE_OF, UpdateState, decide_update

states = st.sampled_from(InstanceState)
kept = st.sampled_from([state for state in UpdateState if state not in REFUSALS])
judged_anew = st.none() | st.sampled_from(sorted(REFUSALS))
counts = st.integers(0, 2 * MAX_OPEN_UPDATES)


@given(states, kept, counts)
def test_G6_the_same_update_again_is_the_same_one_also_after_the_end(
    state: InstanceState, known: UpdateState, count: int
) -> None:
    assert decide_update(state, known=known, open_updates=count) is EventVerdict.DUPLICATE


@given(states, kept, counts)
def test_G3_another_update_never_gets_the_answer_of_the_one_that_has_its_id(
    state: InstanceState, known: UpdateState, count: int
) -> None:
    assert decide_update(state, known=known, is_same=False, open_updates=count) is EventVerdict.CONFLICT


@given(states, judged_anew, counts, st.booleans())
def test_G7_one_that_left_no_trace_is_judged_by_its_instance_alone(
    state: InstanceState, known: UpdateState | None, count: int, is_same: bool
) -> None:
    verdict = decide_update(state, known=known, is_same=is_same, open_updates=count)
    if state in INSTANCE_FINAL:
        assert verdict is EventVerdict.CLOSED
    else:
        assert verdict is (EventVerdict.DELIVER if count < MAX_OPEN_UPDATES else EventVerdict.MAILBOX_FULL)


def test_every_answer_of_a_handler_is_a_state_of_its_own() -> None:
    assert len(set(STATE_OF.values())) == len(STATE_OF)
    assert set(STATE_OF.values()) > REFUSALS
