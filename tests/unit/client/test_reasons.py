"""Groups of reasons, and what to do about them (R17)."""

import pytest

from holdfast.client.views.reasons import reason_key, remedy
from holdfast.core.leases import TOOK_DOWN_ITS_OWNERS

TRACE = """
  File "/shop.py", line {line}, in pay
    raise KeyError(name)"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a child of workflow 'x' (number 0, id 'a/1/0')", "a child of workflow 'x' (number 0, id 'b/1/0')"),
        ("update '0e6e7b0c-5c1f-4f3e-9d5b-0a1b2c3d4e5f'", "update 'ffffffff-5c1f-4f3e-9d5b-0a1b2c3d4e5f'"),
        ("<Order object at 0x7f0a1b>", "<Order object at 0x7fffff>"),
        ("ValueError: order 10001 is gone", "ValueError: order 20002 is gone"),
        ("the key 01arz3ndektsv4rrffq69g5fav", "the key 01arz3ndektsv4rrffq69g5fax"),
        ("UndeclaredError: x raised KeyError: 'a'" + TRACE, "UndeclaredError: x raised KeyError: 'b'" + TRACE),
    ],
)
def test_R17_reasons_that_differ_in_values_are_one_group(one: str, other: str) -> None:
    assert reason_key(one, "a") == reason_key(other, "b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the history at step 1: recorded nothing", "the history at step 2: recorded nothing"),
        ("a call of activity 'one' (number 0)", "a call of activity 'two' (number 0)"),
        ("UndeclaredError: x raised KeyError: 'a'" + TRACE, "UndeclaredError: x raised TypeError: 'a'" + TRACE),
        (
            "UndeclaredError: x raised KeyError" + TRACE.format(line=1),
            "UndeclaredError: x raised KeyError" + TRACE.format(line=2),
        ),
    ],
)
def test_R17_reasons_with_other_causes_are_other_groups(one: str, other: str) -> None:
    assert reason_key(one, "a") != reason_key(other, "b")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("HistoryMismatch: the code does not match", "hf.patched()"),
        ("UndeclaredError: x raised KeyError", "fails_with="),
        ("TurnTooLong: 10 s", "mend the code"),
        ("ArgumentError: cents: Expected int", "change the type"),
        ("PayloadTooLarge: 40 MiB", "--payload-limit"),
        ("FlowError: not in the store", "deploy the flow"),
        (TOOK_DOWN_ITS_OWNERS, "ends its process"),
        ("OSError: no such file", "remove the cause, then holdfast resume ID"),
    ],
)
def test_R17_each_kind_of_reason_has_a_remedy(reason: str, words: str) -> None:
    assert words in remedy(reason)
