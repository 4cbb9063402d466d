"""Literals that would fail whenever they run are problems of the file, each on its line."""

import pytest
from tests.unit.flows.writing import load, problems_of, with_nodes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{run: x, after: start, when: '1'}", "it: when: a condition is true or false, not 1"),
        ("{run: x, after: start, when: \"'yes'\"}", "it: when: a condition is true or false, not 'yes'"),
        ("{run: x, after: start, when: 'null'}", "it: when: a condition is true or false, not null"),
        ("{run: x, after: {start: {when: '0'}}}", "it: when: a condition is true or false, not 0"),
        ("{interrupt: true, after: start}", "it: interrupt: interrupt takes self, or an expression that gives the id"),
        ("{interrupt: '7', after: start}", "which is a string, not 7"),
        ("{raise: {event: e, to: '7'}, after: start}", "it: raise.to: the id of an instance is a string, not 7"),
        ("{flow: x, id: '7', after: start}", "it: id: the id of an instance is a string, not 7"),
        ("{run: x, each: '7', after: start}", "it: each: each takes a list, not 7"),
        ("{wait: {timer: \"'soon'\"}, after: start}", "a duration is a number of seconds, 0 or more, not 'soon'"),
        ("{wait: {event: e, timeout: 'null'}, after: start}", "0 or more, not null"),
        (
            "{cycle: a, after: a, delay: 'true'}",
            "it: delay: a duration is a number of seconds, 0 or more, not true",
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
        (4, "item: item has another meaning in expressions; choose another id"),
        (5, "b: input.0: item has a value only in the input and id of an activity with each"),
    ]
