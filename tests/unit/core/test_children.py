"""What the end of a parent does to its children, and what theirs tells it (A9, G4, G5)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.children import ParentClose, ParentEnd, child_reply, decide_close
from holdfast.core.history import ChildCompleted, ChildFailed, ChildStopped, Payload
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState

OPEN = [state for state in InstanceState if state not in INSTANCE_FINAL]
policies, ends, states = st.sampled_from(ParentClose), st.sampled_from(ParentEnd), st.sampled_from(OPEN)
STRENGTH = [ParentClose.ABANDON, ParentClose.CANCEL, ParentClose.TERMINATE]


@given(policies, ends, states)
def test_A9_no_end_is_harder_on_a_child_than_its_policy(
    policy: ParentClose, end: ParentEnd, state: InstanceState
) -> None:
    assert STRENGTH.index(decide_close(policy, end, state)) <= STRENGTH.index(policy)


@given(policies, states)
def test_A9_a_terminated_parent_does_what_the_policy_says(policy: ParentClose, state: InstanceState) -> None:
    decided = decide_close(policy, ParentEnd.TERMINATED, state)
    is_asked_already = policy is ParentClose.CANCEL and state is InstanceState.CANCEL_REQUESTED
    assert decided is (ParentClose.ABANDON if is_asked_already else policy)


@given(policies, st.sampled_from([ParentEnd.BY_ITSELF, ParentEnd.CANCELLED]))
def test_A9_one_that_was_asked_to_end_may_clean_up(policy: ParentClose, end: ParentEnd) -> None:
    assert decide_close(policy, end, InstanceState.CANCEL_REQUESTED) is ParentClose.ABANDON


def test_A9_a_parent_that_nobody_could_ask_has_its_children_asked() -> None:
    assert decide_close(ParentClose.TERMINATE, ParentEnd.CANCELLED, InstanceState.RUNNING) is ParentClose.CANCEL


@pytest.mark.parametrize("state", sorted(INSTANCE_FINAL))
def test_G5_every_way_to_end_is_told(state: InstanceState) -> None:
    told = child_reply(3, state, Payload(msgspec.Raw(b'"why"')), time_ms=7)
    assert (told.child, told.time_ms) == (3, 7)
    match state:
        case InstanceState.COMPLETED:
            assert isinstance(told, ChildCompleted)
        case InstanceState.FAILED:
            assert isinstance(told, ChildFailed)
        case _:
            assert isinstance(told, ChildStopped)
            assert (told.state, told.reason) == (state.value, "why")
