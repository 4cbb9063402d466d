"""Literals that would fail whenever they run are problems of the file, each on its line."""

import pytest
from tests.unit.flows.writing import load, problems_of, with_nodes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{run: x, after: start, when: '1'}", "it: when: a condition is true or false, and 1 is neither"),
        ("{run: x, after: start, when: \"'yes'\"}", "it: when: a condition is true or false, and 'yes' is neither"),
        ("{run: x, after: start, when: 'null'}", "it: when: a condition is true or false, and null is neither"),
        ("{run: x, after: {start: {when: '0'}}}", "it: when: a condition is true or false, and 0 is neither"),
        ("{interrupt: true, after: start}", "it: interrupt: interrupt takes self, or an expression that gives the id"),
        ("{interrupt: '7', after: start}", "which is a text, not 7"),
        ("{raise: {event: e, to: '7'}, after: start}", "it: raise.to: the id of an instance is a text, and 7 is none"),
        ("{flow: x, id: '7', after: start}", "it: id: the id of an instance is a text, and 7 is none"),
        ("{run: x, each: '7', after: start}", "it: each: each goes over a list, and 7 is none"),
        ("{wait: {timer: \"'soon'\"}, after: start}", "a time is a number of seconds, 0 or more, and 'soon' is none"),
        ("{wait: {event: e, timeout: 'null'}, after: start}", "0 or more, and null is none"),
        (
            "{cycle: a, after: a, delay: 'true'}",
            "it: delay: a time is a number of seconds, 0 or more, and true is none",
        ),
    ],
)
def test_a_literal_that_can_never_be_right_is_told_with_its_line(line: str, said: str) -> None:
    ((number, message),) = problems_of(with_nodes("a: {run: x, after: start}", f"it: {line}"))
    assert (number, said in message) == (5, True), message


@pytest.mark.parametrize(
    "line",
    [
        "{run: x, after: start, when: true}",
        "{run: x, after: start, when: 'false'}",
        "{interrupt: self, after: start}",
        "{interrupt: \"'other-1'\", after: start}",
        "{flow: x, id: \"'other-1'\", after: start}",
        "{run: x, each: '[1, 2]', after: start}",
        "{run: x, after: start, input: ['1', \"'text'\", 'null']}",
        "{wait: {timer: 5}, after: start}",
    ],
)
def test_a_literal_that_may_be_right_is_not_told(line: str) -> None:
    assert load(with_nodes(f"it: {line}")).name == "f"


def test_an_activity_called_item_does_not_hide_where_item_has_no_value() -> None:
    several = ["item: {run: x, after: start}", "b: {run: x, after: item, input: [item.output]}"]
    assert problems_of(with_nodes(*several)) == [
        (4, "item: item means something else in expressions; take another id"),
        (5, "b: input.0: item has a value only in the input and id of an activity with each"),
    ]
