"""Expressions: what they give, what they refuse, and that the short way gives what the library gives."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ExpressionError
from holdfast.flows.expressions import expression as expressions
from holdfast.flows.expressions.cel import compile_program
from holdfast.flows.expressions.expression import CelExpression, Literal, Path, compile_expression

QUICK: dict[str, Any] = {
    "quick": {
        "input": {
            "speed": 5,
            "ratio": 5.0,
            "name": "h\u00e9\U0001f600llo",
            "items": [1, 2, 3],
            "none": None,
            "on": True,
        },
        "output": None,
        "error": None,
    }
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("quick.input.speed", 5),
        ("quick.output", None),
        ('quick.input["speed"]', 5),
        ("quick.input.items[2]", 3),
        ("quick.input.speed == quick.input.ratio", True),
        ("quick.input.speed > 4.5", True),
        ("quick.input.speed / 2", 2),
        ("-7 % 3", -1),
        ("size(quick.input.name)", 6),
        ("has(quick.input.wind)", False),
        ("quick.input.on || nobody.x", True),
        ("quick.output == null || quick.output.x > 1", True),
        ("quick.input.items.map(i, i * 2)", [2, 4, 6]),
        ("quick.input.items.filter(i, i > 1).exists(j, j == quick.input.speed - 2)", True),
        ("{'speed': quick.input.speed, 'all': quick.input.items}", {"speed": 5, "all": [1, 2, 3]}),
        ("quick.input.speed > 3 ? 'fast' : 'slow'", "fast"),
        ("quick.input.name.matches('^h.*o$') && 2 in quick.input.items", True),
        ("type(quick.input.speed) == int", True),
        ("duration('90s')", 90.0),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("9223372036854775807", 9223372036854775807),
        ("'text'", "text"),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
    ],
)
def test_an_expression_gives_plain_values(text: str, value: object) -> None:
    given_value = compile_expression(text).evaluate(QUICK)
    assert given_value == value
    assert type(given_value) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quick.input.wind", '"wind"'),
        ("quick.output.x", "null"),
        ("quick.input.items[3]", "list of 3"),
        ("quick.input.speed.x", '"x"'),
        ("fox.input.x", "no fox"),
        ("fox.input.x > 1", "no fox"),
        ("quick.input.wind > 1", '"wind"'),
        ("quick.output.x > 1", "null"),
        ("quick.input.items[9] == 1", "there is no [9] in a list of 3"),
        ("quick.input.items[quick.input.speed] == 1", "there is no [5] in a list of 3"),
        ("quick.input.items[-1] == 1", "there is no [-1] in a list of 3"),
        ("quick.input.items[0].x == 1", 'there is no "x" in a int'),
        ("quick.input.items['x'] == 1", 'there is no "x" in a list of 3'),
        ("quick.input.items[quick.input.name] == 1", "the index of a list must be an integer"),
        ("quick.output.x == 1", 'there is no "x", because the value that should have it is null'),
        ("quick.input.on && quick.output.x == 1", 'there is no "x", because the value that should have it is null'),
        ("quick.input.name.contains('l') && quick.input.speed.x == 1", 'there is no "x" in a int'),
        ("quick.input.none[0] == 1", "there is no [0], because the value that should have it is null"),
        ("[1].map(one, one[0])", "only a list or a mapping has items, not int"),
        ("[1].map(one, one.x)", "it reads a field of a value without fields"),
        ("quick.input.none > 1", "> does not work with null and int"),
        ("quick.input.speed + 1.5", "+ does not work with int and double"),
        ("quick.input.speed / 0", "divide by zero"),
        ("9223372036854775807 + 1", "overflow"),
        ("quick.input.none.map(x, x)", "list or a map"),
        ("quick.input.speed ? 1 : 2", "true or false"),
        ("b'abc'", "JSON cannot hold"),
        ("{1: 2}", "keys in JSON are strings"),
        ("1e400", "finite"),
        ("type(1)", "JSON cannot hold"),
    ],
)
def test_what_has_no_value_says_what_is_missing(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text).evaluate(QUICK)
    assert said in str(caught.value)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("start.input.x >", "unexpected end of the expression", 16),
        ("", "unexpected end of the expression", 1),
        ("a..b", "..", 3),
        ("a = 3", "write ==", 3),
        ("a\n  && && b", "&&", 8),
        ("9223372036854775808", "int literal", 1),
        ("sizes(a)", "did you mean size?", 1),
        ("1 + a.startWith('x')", "did you mean startsWith?", 7),
        ("1;2", ";", 2),
        ("for", "reserved", 1),
        ("a.map(i, a.map(j, a.map(k, a.map(l, 1))))", "inside each other", 30),
    ],
)
def test_what_is_no_expression_is_refused_with_its_column(text: str, said: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert said in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", set[str]()),
        ("a.b.c", {"a"}),
        ("a.b > b.c && c", {"a", "b", "c"}),
        ("a.map(x, x + y).all(z, z.a > w[v])", {"a", "y", "w", "v"}),
        ("a.map(x, b.filter(y, y == x)) == [x]", {"a", "b", "x"}),
        ("{'a': b, c: 'd'}", {"b", "c"}),
        ("'a.b' + \"c 'd' e\" + r'\\f' + '''g'''", set[str]()),
        ("has(a.b) ? type(b) == string : null", {"a", "b"}),
        ("a.size() + size(b) // c", {"a", "b"}),
        ("a[b.c].d", {"a", "b"}),
        ("a in b", {"a", "b"}),
        ("a.`x-y`.z > 1", {"a"}),
        ("1.5e3 > a ? 0x1F : 1u", {"a"}),
        ("'it\\'s' + a", {"a"}),
    ],
)
def test_the_names_are_the_variables_that_are_read(text: str, names: set[str]) -> None:
    assert compile_expression(text).names == names


def test_most_expressions_do_not_need_the_library() -> None:
    assert isinstance(compile_expression("quick.input.speed"), Path)
    assert isinstance(compile_expression(" quick.input['speed'][0] "), Path)
    assert isinstance(compile_expression("-5"), Literal)
    assert isinstance(compile_expression("string"), CelExpression)
    assert isinstance(compile_expression("quick.input.speed > 1"), CelExpression)


NAMES = st.sampled_from(["a", "b", "input", "x-y", "in_", "\u00e9", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
STEPS = st.lists(
    st.sampled_from([".a", ".b", ".input", "[0]", "[1]", '["a"]', "['x-y']", '["\u00e9"]', "['b']", '[""]']), max_size=5
)


@given(root=st.sampled_from(["a", "b", "c"]), steps=STEPS, values=st.fixed_dictionaries({"a": VALUES, "b": VALUES}))
def test_a_path_gives_what_the_library_gives(root: str, steps: list[str], values: dict[str, Any]) -> None:
    text = root + "".join(steps)
    path = compile_expression(text)
    assert isinstance(path, Path)
    assert _outcome(path.evaluate, values) == _outcome(compile_program(text).run, values)


@given(
    st.integers(-(10**18) + 1, 10**18 - 1).map(str)
    | st.decimals(-1000, 1000, places=3).map(str)
    | st.sampled_from(["true", "false", "null", "'a'", '"b \u00e9"', "''"])
)
def test_a_literal_gives_what_the_library_gives(text: str) -> None:
    literal = compile_expression(text)
    assert isinstance(literal, Literal)
    assert _outcome(literal.evaluate, {}) == _outcome(compile_program(text).run, {})


@given(st.text(st.sampled_from(list("ab.x()[]{}'\"+-*/<>=!&|?:, 01\\`\u00e9\n")) | st.characters(), max_size=30))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    with suppress(ExpressionError):
        compile_expression(text).evaluate({"a": {"b": [1, "x"]}, "b": 1})


def test_a_map_comes_out_in_the_order_of_its_keys() -> None:
    """The library has no order of its own that would be the same in every process."""
    made = compile_expression("{'c': 1, 'a': a, 'b': {'z': 1, 'y': 2}}").evaluate({"a": {"n": 1, "m": 2}})
    assert json.dumps(made) == '{"a": {"m": 2, "n": 1}, "b": {"y": 2, "z": 1}, "c": 1}'


def test_only_what_is_read_is_handed_over() -> None:
    values = {"a": {"input": {"x": 1, "huge": 2**100}, "output": {"y": 2}}, "b": 1}
    assert compile_expression("a.input.x + a.output.y").evaluate(values) == 3
    with pytest.raises(ExpressionError, match="more than 64 bits"):
        compile_expression("a.input == null").evaluate(values)


INTEGERS_OF_CEL = range(-(2**63), 2**64)
EDGES = [edge + beyond for edge in (-(2**63), 2**63, 2**64, 2**70, -(2**70)) for beyond in (-1, 0, 1)]


@pytest.mark.parametrize("number", EDGES)
@pytest.mark.parametrize("text", ["a.x == 5", "a.x > 5.5", "a.x != 'a'", "a.x == null"])
def test_integers_of_more_than_64_bits_are_refused(number: int, text: str) -> None:
    values = {"a": {"x": number}}
    if number in INTEGERS_OF_CEL:
        assert isinstance(compile_expression(text).evaluate(values), bool)
    else:
        with pytest.raises(ExpressionError, match="more than 64 bits"):
            compile_expression(text).evaluate(values)


@pytest.mark.parametrize("text", ["a.x > 5", "a.x > 5 || false", "a.x > 1.5", "[a.x]"])
def test_an_integer_beyond_64_bits_is_refused_without_the_input(text: str) -> None:
    with pytest.raises(ExpressionError, match="an integer of more than 64 bits") as refused:
        compile_expression(text).evaluate({"a": {"x": 10**4000, "secret": "x"}})
    assert len(str(refused.value)) < 200


def test_a_lone_surrogate_is_named_without_objects_of_the_library() -> None:
    with pytest.raises(ExpressionError, match=r"^it has a character that is not valid Unicode$"):
        compile_expression("'\ud800' + 'a'")


def test_texts_that_the_library_would_cut_off_are_refused() -> None:
    assert compile_expression("a").evaluate({"a": "x\0y"}) == "x\0y"
    assert compile_expression("a + 'z'").evaluate({"a": "x\\u0000y"}) == "x\\u0000yz"
    for values in ({"a": "x\0y"}, {"a": [{"x\0y": 1}]}):
        with pytest.raises(ExpressionError, match=r"U\+0000"):
            compile_expression("a == 'x' || a == 'y'").evaluate(values)
    with pytest.raises(ExpressionError, match="not valid JSON"):
        compile_expression("a == 'x' || a == 'y'").evaluate({"a": "\ud800"})


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a.map(x, a.map(y, a.map(z, 1)))", 10_000),
        ("a.all(x, a.all(y, a.all(z, true)))", 10_000),
        ("a.map(x, x + 1)", 10_000),
        ("(a + a + a + a).map(x, x)", 1_000),
        ("a.map(x, s + s).map(x, x + x + x)", 1_000),
        ("[1]" + ".map(x, [x, x])" * 22, 0),
        ("+".join(["(s+s)"] * 24), 0),
        ("s.matches('(x*)*y')", 0),
    ],
)
def test_an_expression_cannot_hang_a_worker(text: str, items: int) -> None:
    values = {"a": list(range(items)), "s": "x" * 1_000_000}
    with pytest.raises(ExpressionError, match=r"too (often|much)|at most|more than"):
        compile_expression(text).evaluate(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "s.matches('(x*)*y')",
            "an expression with matches reads at most 4,082 bytes, and this reads 1,000,027; do it in an activity",
        ),
        (
            "matches(s, 'y')",
            "an expression with matches reads at most 4,082 bytes, and this reads 1,000,023; do it in an activity",
        ),
        (
            "a.map(x, x)",
            "map and filter go over at most 3,015 items, and these may be 10,000; do it in an activity, or use each",
        ),
        ("+".join(["(s+s)"] * 24), "the limit is 2,000,000,000; do it in an activity"),
        ("a.all(x, s == s)", "goes over lists of up to 10,000 items"),
        ("a.all(x, s == s)", "the limit is 2,000,000,000; do it in an activity, or use each"),
    ],
)
def test_an_expression_with_too_much_work_names_the_limit_and_an_alternative(text: str, message: str) -> None:
    values = {"a": list(range(10_000)), "s": "x" * 1_000_000}
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text).evaluate(values)
    assert message in str(caught.value)
    assert ("use each" in str(caught.value)) is text.startswith("a.")


@pytest.mark.parametrize("text", ["a.matches_text != ''", "a.matches_text == 'matches(' || true", "a.matches != ''"])
def test_only_a_call_of_matches_bounds_the_strings_that_are_read(text: str) -> None:
    values = {"a": {"matches_text": "x" * 100_000, "matches": "x" * 100_000}}
    assert compile_expression(text).evaluate(values) is True


def test_a_list_of_thousands_can_be_mapped() -> None:
    mapped = compile_expression("a.map(x, x.id + 1)").evaluate({"a": [{"id": number} for number in range(2_000)]})
    assert mapped == list(range(1, 2_001))


@pytest.mark.parametrize("text", ["(" * 500 + "1" + ")" * 500, "[" * 900, "1" + "+1" * 1500, "a" + ".b" * 1500])
def test_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(text)


def test_long_expressions_are_refused() -> None:
    with pytest.raises(ExpressionError, match="4,096"):
        compile_expression("a" * (expressions.LONGEST_CHARACTERS + 1))


def _outcome(run: Any, values: dict[str, Any]) -> object:
    """What comes out, with its type, or that nothing does."""
    try:
        return json.dumps(run(values), sort_keys=True)
    except ExpressionError:
        return ExpressionError
