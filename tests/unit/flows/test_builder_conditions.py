"""Conditions that are written in Python mean in CEL what they mean in Python."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import InvalidOption
from holdfast.flows.builder import ExpressionRef
from holdfast.flows.expressions.expression import compile_expression

NAMES: tuple[str, ...] = ("a", "b", "c")
Truths = dict[str, bool]


class Both:
    """A condition as the builder writes it, and its value in Python."""

    def __init__(self, written: ExpressionRef, means: Callable[[Truths], bool]) -> None:
        self.written = written
        self.means = means

    def __repr__(self) -> str:
        return str(self.written)


def _leaf(name: str) -> Both:
    return Both(ExpressionRef(f"{name}.output"), lambda truths: truths[name])


def _joined(operator: str, left: Both, right: Both) -> Both:
    one, other = left.written, right.written
    match operator:
        case "&":
            return Both(one & other, lambda truths: left.means(truths) and right.means(truths))
        case "|":
            return Both(one | other, lambda truths: left.means(truths) or right.means(truths))
        case "==":
            return Both(one == other, lambda truths: left.means(truths) is right.means(truths))
        case _:
            return Both(one != other, lambda truths: left.means(truths) is not right.means(truths))


def _negated(one: Both) -> Both:
    return Both(~one.written, lambda truths: not one.means(truths))


def _larger(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    joined = st.builds(_joined, st.sampled_from(["&", "|", "==", "!="]), inner, inner)
    return st.one_of(joined, st.builds(_negated, inner))


CONDITIONS = st.recursive(st.sampled_from(NAMES).map(_leaf), _larger, max_leaves=8)


@given(CONDITIONS)
def test_a_condition_has_the_value_that_python_gives_it_for_all_truth_values(condition: Both) -> None:
    expression = compile_expression(str(condition.written))
    for values in product([False, True], repeat=len(NAMES)):
        truths: Truths = dict(zip(NAMES, values, strict=True))
        variables = {name: {"output": value} for name, value in truths.items()}
        assert expression.evaluate(variables) is condition.means(truths)


def test_what_binds_less_on_the_left_side_is_in_brackets() -> None:
    a, b, c = (ExpressionRef(name) for name in NAMES)
    assert str((a | b) & c) == "((a) || (b)) && c"
    assert str((a & b) == c) == "(a && b) == c"
    assert str((a | b) != c) == "((a) || (b)) != c"
    assert str((a == b) == c) == "(a == b) == c"
    assert str((a & b)["x"]) == "(a && b).x"


def test_many_conditions_in_a_row_are_not_nested() -> None:
    several = [ExpressionRef(f"a.output[{place}]") for place in range(100)]
    either, both = several[0], several[0]
    for one in several[1:]:
        either, both = either | one, both & one
    variables = {"a": {"output": [False] * 99 + [True]}}
    assert compile_expression(str(either)).evaluate(variables) is True
    assert compile_expression(str(both)).evaluate(variables) is False


@pytest.mark.parametrize("other", ["b.output", 1, None, object()])
def test_only_conditions_are_combined(other: Any) -> None:
    condition = hf.Flow("f").trigger("a").output > 3
    with pytest.raises(InvalidOption, match="& combines conditions"):
        _ = condition & other
    with pytest.raises(InvalidOption, match=r"\| combines conditions"):
        _ = condition | other
    assert str(condition & True) == "a.output > 3 && true"
