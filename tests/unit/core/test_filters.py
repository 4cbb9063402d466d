"""The filter language: what is read, what is refused, and where (F4, F5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import filters
from holdfast.core.filters import (
    And,
    Between,
    Comparison,
    Field,
    In,
    Instant,
    IsNull,
    Length,
    Not,
    Operator,
    Or,
    RelativeInstant,
    StartsWith,
    at,
    canonical,
    parse,
)
from holdfast.errors import InvalidFilter

STATE = Field("state")
CUSTOMER = Field("customer", is_attribute=True)
FAILED = Comparison(STATE, Operator.EQUAL, "FAILED")
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("state = FAILED", FAILED),
        ("STATE = failed", FAILED),
        ("state == 'Failed'", FAILED),
        ("state <> failed", Comparison(STATE, Operator.NOT_EQUAL, "FAILED")),
        ("state in (failed, RUNNING)", In(STATE, ("FAILED", "RUNNING"))),
        ('a.customer = "acme"', Comparison(CUSTOMER, Operator.EQUAL, "acme")),
        ("A.customer='it\\'s \\\\'", Comparison(CUSTOMER, Operator.EQUAL, "it's \\")),
        ("a.customer >= -1.5e3", Comparison(CUSTOMER, Operator.AT_LEAST, -1500.0)),
        ("a.customer < 7", Comparison(CUSTOMER, Operator.BELOW, 7)),
        ("a.customer = TRUE", Comparison(CUSTOMER, Operator.EQUAL, True)),
        ("a.customer between 'a' and 'b'", Between(CUSTOMER, "a", "b")),
        ("a.customer is null", IsNull(CUSTOMER)),
        ("a.customer is not null", IsNull(CUSTOMER, is_negated=True)),
        ("id starts with '%_'", StartsWith(Field("id"), "%_")),
        ("created > now - 1h30m", Comparison(Field("created"), Operator.ABOVE, RelativeInstant("now", -3 * HOUR // 2))),
        ("closed <= yesterday", Comparison(Field("closed"), Operator.AT_MOST, RelativeInstant("yesterday"))),
        ("created < 1970-01-01T01:00:00+01:00", Comparison(Field("created"), Operator.BELOW, Instant(0))),
        ("created = '1970-01-01T00:00:00.000001Z'", Comparison(Field("created"), Operator.EQUAL, Instant(1))),
        ("duration >= 1.5s250ms", Comparison(Field("duration"), Operator.AT_LEAST, Length(1_750_000))),
        ("not state = failed", Not(FAILED)),
        ("state = failed and state = failed or state = failed", Or((And((FAILED, FAILED)), FAILED))),
        ("state = failed and (state = failed or state = failed)", And((FAILED, Or((FAILED, FAILED))))),
        ("  ( ( state=failed ) )\n", FAILED),
    ],
)
def test_F4_a_filter_is_read(text: str, tree: filters.Filter) -> None:
    assert parse(text) == tree
    assert parse(canonical(tree)) == tree


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "a field is expected here, not the end of the filter"),
        ("   ", 4, "a field is expected"),
        ("statee = FAILED", 1, "no field 'statee'; did you mean state?"),
        ("customer = 'acme'", 1, "an attribute is written a.customer"),
        ("state = FAILD", 9, "'FAILD' is not a state; did you mean FAILED?"),
        ("state = nonsense", 9, "the states are"),
        ("state > FAILED", 7, "state has no order"),
        ("state", 6, "follows a field, not the end of the filter"),
        ("id like 'a'", 4, "follows a field, not 'like'"),
        ("id = acme", 6, "a text is in quotes: 'acme'"),
        ("id = 7", 6, "id takes a text in quotes, not '7'"),
        ("id = null", 6, "a value is expected"),
        ("id = 'acme", 6, "a text begins here and does not end with '"),
        ("execution = 'one'", 13, "execution takes an integer"),
        ("execution = true", 13, "execution takes an integer"),
        ("execution = 1.5", 13, "execution takes an integer"),
        ("execution = 9223372036854775808", 13, "out of range"),
        ("a.n = 1e999", 7, "out of range"),
        (f"a.n = {'9' * 5_000}", 7, "more than 60 digits"),
        ("a.n = 1h", 7, "a.n takes a text, a number, a time, true or false, not '1h'"),
        ("a.n between 1 and 'b'", 19, "between takes two numbers"),
        ("a.é = 1", 3, "'é' is not a word of the filter language"),
        (f"a.{'n' * 65} = 1", 1, "does not name an attribute"),
        ("a. = 1", 1, "does not name an attribute"),
        ("created > 2026-11-18", 11, "needs a zone"),
        ("created > 2026-13-18T00:00:00Z", 11, "is not a time"),
        ("created > 5", 11, "created takes a time"),
        ("created > now - 5", 17, "a duration such as 1h30m is expected here, not '5'"),
        ("created > now - 99999999w", 17, "longer than 1,000,000 days"),
        ("duration > now", 12, "duration takes a duration"),
        ("created starts with '2026'", 9, "only texts start with something"),
        ("a.t starts with 5", 17, "takes a text in quotes"),
        ("id starts 'a'", 11, "'with' is expected here"),
        ("id in 'a'", 7, "'(' is expected here"),
        ("id in ()", 8, "id takes a text"),
        ("id in ('a' 'b')", 12, "',' or ')' is expected here"),
        ("(state = failed", 16, "')' is expected here, not the end"),
        ("state = failed)", 15, "'and', 'or' or the end is expected here, not ')'"),
        ("state = failed state = failed", 16, "'and', 'or' or the end"),
        ("state = failed and", 19, "a field is expected here, not the end"),
        ("and = 1", 1, "a field is expected here, not 'and'"),
        ("state is failed", 10, "'null' is expected"),
        ("id = 'a\0'", 8, "'\\x00' is not allowed"),
        ("id = 'a\ud800'", 8, "'\\ud800' is not allowed"),
        ("state = failed; DROP TABLE instances", 15, "is not a word of the filter language"),
        ("waits < 'a'", 7, "waits has no order"),
    ],
)
def test_F5_a_wrong_filter_is_an_error_with_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(text)
    assert caught.value.column == column, caught.value
    assert f"column {column}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("allowed", "beyond"),
    [
        (" and ".join(["state = failed"] * 20), " and ".join(["state = failed"] * 21)),
        (f"{'(' * 7}state = failed{')' * 7}", f"{'(' * 8}state = failed{')' * 8}"),
        (f"{'not ' * 7}state = failed", f"{'not ' * 8}state = failed"),
        (f"a.n in ({', '.join(['1'] * 100)})", f"a.n in ({', '.join(['1'] * 101)})"),
        (f"id = '{'x' * 99_993}'", f"id = '{'x' * 100_001}'"),
    ],
    ids=["tests", "brackets", "nots", "values", "characters"],
)
def test_F5_the_size_of_a_filter_is_limited(allowed: str, beyond: str) -> None:
    parse(allowed)
    with pytest.raises(InvalidFilter, match=r"at most|deeper than"):
        parse(beyond)


def test_F5_a_filter_is_a_string() -> None:
    with pytest.raises(InvalidFilter, match="not int"):
        parse(7)


def test_F4_relative_times_are_those_of_one_moment() -> None:
    now_ms = 10 * 86_400_000 + 5
    found = parse("created > now - 1s and closed in (today, yesterday + 1ms) and a.due between now and now + 1d")
    assert canonical(at(found, now_ms)) == (
        "created > 1970-01-10T23:59:59.005000Z and closed in (1970-01-11T00:00:00Z, 1970-01-10T00:00:00.001000Z)"
        " and a.due between 1970-01-11T00:00:00.005000Z and 1970-01-12T00:00:00.005000Z"
    )
    assert at(parse("not state = failed or id is null"), now_ms) == parse("not state = failed or id is null")


def column_of_error(text: str) -> int:
    """Where a filter is wrong; 0 if it is not."""
    try:
        parse(text)
    except InvalidFilter as error:
        return error.column
    return 0


@given(st.text(max_size=200))
def test_F5_any_text_is_read_or_refused(text: str) -> None:
    column = column_of_error(text)
    assert 0 <= column <= len(text) + 1
    if column == 0:
        assert parse(canonical(parse(text))) == parse(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_F5_any_text_can_be_quoted(text: str) -> None:
    assert parse(f"id = {filters.quoted(text)}") == Comparison(Field("id"), Operator.EQUAL, text)


@given(
    st.lists(st.sampled_from(["state", "=", "and", "not", "(", ")", "in", "'a'", "now", "-", "1h", ",", "a.x", "is"]))
)
def test_F5_words_in_any_order_are_read_or_refused(words: list[str]) -> None:
    assert column_of_error(" ".join(words)) >= 0
