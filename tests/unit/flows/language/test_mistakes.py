"""Mistakes in flows: one error has all problems, each with its line and a suggestion."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.flows.writing import BOTH, HEAD, SAMPLES, load, problem_of, problems_of, with_nodes

from holdfast.core.flow.definition import graph_of
from holdfast.errors import FlowError, UsageError
from holdfast.flows.language import yaml_tree as documents
from holdfast.flows.language.checker import KnownNames
from holdfast.flows.language.parser import load_file, load_text


def test_every_line_of_the_broken_flow_is_reported_at_once() -> None:
    with pytest.raises(FlowError) as caught:
        load_file(SAMPLES / "broken.yaml", KnownNames(activities={"shop.pack"}))
    found = {problem.line: str(problem) for problem in caught.value.problems}
    assert list(found) == list(range(5, 17))
    assert len(caught.value.problems) == len(found)
    expected = {
        5: '"no.such.activity"',
        6: "did you mean start?",
        7: "cycle: b -> c -> b",
        8: "cycle: c -> b -> c",
        9: "it is unreachable",
        10: "column 16",
        11: '"nobody"',
        12: "attempts must be 1 or more",
        13: "did you mean queue?",
        14: "it does nothing",
        15: "run and wait at once",
        16: "start is one already",
    }
    for line, said in expected.items():
        assert said in found[line]
    assert str(caught.value).splitlines()[1].startswith(f"{SAMPLES / 'broken.yaml'}:6: a2: ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{run: x, after: sart}", 'no activity "sart" for it to come after (did you mean start?)'),
        ("{rnu: x, after: start}", 'no key "rnu" here (did you mean run?)'),
        ("{run: x, after: start, delay: 1h}", "delay goes with cycle, not with run"),
        ("{run: x, after: start, limit: 3}", "limit goes with each"),
        ("{run: '', after: start}", "run must be the name of an activity"),
        ("{run: x, after: start, queue: [a]}", "queue must be the name of a queue, not a list"),
        ("{run: x, after: start, retry: 5}", "retry must be a mapping"),
        ("{run: x, after: start, retry: {attempts: 0}}", "attempts must be 1 or more"),
        ("{run: x, after: start, retry: {attempts: five}}", "attempts must be 1 or more"),
        ("{run: x, after: start, retry: {backoff: 0.5}}", "backoff must be a number of at least 1"),
        ("{run: x, after: start, retry: {initial: 2m, maximum: 1m}}", "at least as long as initial"),
        ("{run: x, after: start, retry: {jitter: 1}}", "jitter must be true or false"),
        ("{run: x, after: start, retry: {atempts: 1}}", 'no key "atempts" here (did you mean attempts?)'),
        ("{run: x, after: start, heartbeat: soon}", "heartbeat must be a number of seconds or a string such as"),
        ("{run: x, after: start, heartbeat: -1}", "heartbeat must be 0 to"),
        ("{run: x, after: start, heartbeat: 0}", "longer than 0"),
        ("{run: x, after: start, heartbeat: .inf}", "not a number in JSON"),
        ("{run: x, after: start, when: ''}", "when must be an expression"),
        ("{run: x, after: start, when: 5}", "when must be an expression, not 5"),
        ("{run: x, after: start, join: both}", "join must be one of all, any"),
        ("{run: x, after: start, input: {name: hello}}", "\"'hello'\""),
        ("{run: x, after: start, input: {name: start.ouput}}", "only error, input, output (did you mean output?)"),
        ("{run: x, after: start, input: start.error.mesage}", "only type and message (did you mean message?)"),
        ("{run: x, after: start, input: flow.nmae}", "no nmae, only id, name, version (did you mean name?)"),
        ("{run: x, after: start, input: item}", "item has a value only"),
        ("{run: x, after: start, input: it.output}", "it has no value before it runs"),
        ("{run: x, after: start, input: 'start.input +'}", "cannot be read, column"),
        ("{run: x, after: start, each: item.x}", "item has a value only"),
        ("{run: x, after: start, each: 5}", "each must be an expression"),
        ("{run: x, after: start, each: start.input, limit: 0}", "limit must be an integer from 1"),
        ("{run: x, after: [start, start]}", 'after: "start" occurs twice; join the conditions, or the errors to catch'),
        ("{run: x, after: {start: {catch: []}}}", "catch must be the name of an error"),
        ("{run: x, after: {start: {cach: E}}}", 'no key "cach" here (did you mean catch?)'),
        ("{run: x, after: {start: soon}}", "it must be a mapping such as {catch"),
        (
            "{run: x, after: {start: [{}, {}]}}",
            'after: "start" occurs twice; join the conditions, or the errors to catch',
        ),
        ("{run: x, after: {start: {when: ' '}}}", 'after.start: when must be an expression, not " "'),
        ("{run: x, after: {start: {otherwise: true, when: true}}}", "neither when nor catch"),
        ("{run: x, after: start, otherwise: true}", "no condition after start holds, and no edge from it has one"),
        ("{run: x}", "it is unreachable; write after: ID, the activity that it comes after"),
        ("{run: x, after: it}", "cycle: it -> it"),
        ("{wait: {}, after: start}", "it needs an event or a timer"),
        ("{wait: {event: e, timer: 1s}, after: start}", "timer is for a wait without an event"),
        ("{wait: e, after: start}", "wait must be a mapping"),
        ("{cycle: start, after: start}", "cannot go back to the trigger"),
        ("{cycle: strat, after: start}", 'no activity "strat" to go back to (did you mean start?)'),
        ("{cycle: it, after: start}", "which does not come before it"),
        ("{raise: {event: e}, after: start}", "raise: it needs to"),
        ("{run: x, after: start, hold: 5}", "hold must be true or a mapping such as {timeout: 1d}, not 5"),
        ("{run: x, after: start, hold: soon}", 'hold must be true or a mapping such as {timeout: 1d}, not "soon"'),
        ("{run: x, after: start, hold: {}}", "hold: it needs a timeout; write hold: true for a hold without one"),
        ("{run: x, after: start, hold: {timeot: 1d}}", 'hold: there is no key "timeot" here (did you mean timeout?)'),
        ("{run: x, after: start, hold: {timeout: -1}}", "hold: timeout must be 0 to"),
        ("{run: x, after: start, hold: {timeout: it.output}}", "hold.timeout: it has no value before it runs"),
        ("{run: x, after: start, hold: {timeout: \"'soon'\"}}", "a duration is a number of seconds, 0 or more"),
        ("{trigger: true, hold: true}", "it is the trigger, which does nothing that could be held"),
        ("{run: x, after: start, each: start.responses}", "each: start runs no activity, so it has no responses"),
        ("{run: x, after: start, each: strat.responses}", 'no activity "strat" (did you mean start?)'),
        ("{run: x, after: start, each: it.responses}", "it runs once for each item and has no responses"),
        ("{run: x, after: start, input: start.responses}", "start.responses stands alone in each"),
        ("{run: x, after: start, each: 'start.responses + []'}", "start.responses stands alone in each"),
        ("{trigger: false}", "trigger must be true"),
        ("{each: start.input, after: start}", "it does nothing"),
        ("nothing", "it must be a mapping such as {run"),
        ("[]", "it must be a mapping such as {run"),
        ("", "it must be a mapping such as {run"),
        ("{run: x, after: start, on: y}", "on is read as true"),
        ("{run: x, after: start, input: {a: yes}}", "yes is read as true"),
        ("{run: &x x, after: start}", "anchors such as &x"),
        ("{run: !x x, after: start}", "tags such as"),
        ("{run: !!python/object/apply:os.system x, after: start}", "tags such as"),
        ("{run: x, run: y, after: start}", '"run" occurs twice; it is also in line 4'),
        ("{run: x, after: start, input: {1: 2}}", 'key "1" is not a string'),
        ("{run: x, after: start, input: {[1]: 2}}", "a key must be a string"),
    ],
)
def test_what_is_wrong_with_an_activity_is_found(line: str, said: str) -> None:
    found = problems_of(f"{HEAD}  it: {line}\n")
    assert {number for number, _ in found} == {4}
    assert said in found[0][1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{run: x, after: start, heartbeat: .inf}", ".inf is not a number in JSON"),
        ("{run: x, after: start, heartbeat: -.INF}", "-.INF is not a number in JSON"),
        ("{run: .nan, after: start}", ".nan is not a number in JSON"),
        ("{run: x, after: [start, .nan]}", ".nan is not a number in JSON"),
        ("{run: x, after: start, retry: {attempts: .inf}}", ".inf is not a number in JSON"),
        ("{<<: *base, run: x, after: start}", "merge keys (<<) are not supported in flows; write the values out"),
        ("{<<: {run: x}, after: start}", "merge keys (<<) are not supported in flows; write the values out"),
        ('{"<<": 1, run: x, after: start}', 'it: there is no key "<<" here'),
        ("*x", "aliases such as *x are not supported in flows; write the value out"),
        ("{run: *x, after: start}", "aliases such as *x are not supported in flows; write the value out"),
        ("{run: x, after: *x}", "aliases such as *x are not supported in flows; write the value out"),
        ("{run: x, after: [*x]}", "aliases such as *x are not supported in flows; write the value out"),
        ("{run: x, after: 5}", "it: after must be the id of an activity or a list of them, not 5"),
        ("{run: x, each: {in: a}, after: start}", "it: each must be an expression, not a mapping"),
        ("{raise: {event: e, to: 5}, after: start}", "it: raise: to must be an expression, not 5"),
        ("{raise: {event: e}, after: start}", "it: raise: it needs to"),
        (
            "{raise: it, after: start}",
            'it: raise must be a mapping such as {event: shipped, to: received.input.buyer}, not "it"',
        ),
        (
            "{run: x, after: start, when: 'a b'}",
            "it: when: \"a b\" cannot be read, column 3: unexpected 'b'; a string has quotes of its own: \"'a b'\"",
        ),
        (
            "{run: x, after: start",
            (
                "it is not valid YAML: while parsing a mapping in { } that begins in line 4: "
                "did not find expected ',' or '}'"
            ),
        ),
        ("{cycle: , after: start}", "it: cycle must be the id of an activity, not nothing"),
        ("{wait: {timer: start.inptu}, after: start}", "it: wait.timer: start has no inptu, only error, input, output"),
    ],
)
def test_nothing_is_said_that_only_follows_from_what_was_said(line: str, said: str) -> None:
    assert problem_of(f"{HEAD}  it: {line}\n").removesuffix(" (did you mean input?)") == said


def test_what_a_file_lacks_is_found_once() -> None:
    assert problem_of("flow: f\nactivities:\n  - a: {trigger: true}") == (
        "activities must be a mapping with a trigger and the activities after it, not a list"
    )
    found = [said for _, said in problems_of("name: f\nsteps:\n  a: {trigger: true}")]
    assert found == [
        "it has no name; write flow: NAME",
        "activities must be a mapping with a trigger and the activities after it, not nothing",
        'there is no key "name" here (did you mean flow?)',
        'there is no key "steps" here (did you mean activities?)',
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{run: x, after: start, when: 'start.input.x and true'}", "unexpected 'and'; write && for and"),
        ("{run: x, after: start, when: 'start.input.x or true'}", "unexpected 'or'; write || for or"),
        ("{run: x, after: start, when: 'not start.input.x'}", "unexpected 'start'; write ! for not"),
        ("{run: x, after: start, when: start.input == None}", 'no activity "None" (did you mean null?)'),
        ("{run: x, after: start, when: len(start.input) > 5}", "no function len(); did you mean size?"),
        ("{run: x, after: start, input: '${start.input}'}", "is written without ${ }"),
        ("{run: x, after: start, input: '{{ start.input }}'}", "is written without ${ }"),
        ("{run: x, needs: start, after: start}", "did you mean after?"),
        ("{run: x, after: start, timeout: 5s}", "did you mean start_to_close?"),
        ("{run: x, after: start, catch: [E]}", "did you mean after: {ID: {catch: [ERROR]}}?"),
    ],
)
def test_the_words_of_others_are_known(line: str, said: str) -> None:
    assert said in problem_of(f"{HEAD}  it: {line}\n")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the file is empty"),
        ("# only a comment\n", 1, "the file is empty"),
        ("just a text", 1, "a flow is a mapping"),
        ("- a\n- b", 1, "a flow is a mapping"),
        ("flow: f\nactivities: {}", 2, "activities must be a mapping with a trigger"),
        ("flow: f", 1, "activities must be a mapping with a trigger"),
        ("activities:\n  a: {trigger: true}", 1, "it has no name"),
        ("flow: f\nactivities:\n  a: {trigger: true}\n---\nflow: g", 4, "a second document begins"),
        ("flow: f\nactivities:\n\ta: {trigger: true}", 3, "a tab?"),
        ("flow: f\nactivities: [", 2, "it is not valid YAML"),
        ("flow: f\nactivity:\n  a: {trigger: true}", 2, "did you mean activities?"),
        (HEAD + "policy: drian", 4, "did you mean drain?"),
        (HEAD + "input: {a: int}", 4, "did you mean integer?"),
        (HEAD + "input: [a]", 4, "input must be a mapping"),
        (HEAD + "output: nobody.output", 4, 'no activity "nobody"'),
        (HEAD + "  start: {trigger: true}", 4, '"start" occurs twice'),
        (HEAD + "  for: {run: a, after: start}", 4, "for has another meaning in expressions"),
        (HEAD + "  a-b: {run: a, after: start}", 4, "letters, digits and _"),
        (HEAD + "  item: {run: a, after: start}", 4, "item has another meaning"),
        (HEAD + "  a: &a {run: a, after: start}\n  b: *a\n", 4, "anchors such as &a"),
        ("flow: f\nactivities:\n  a: {run: x}", 3, "it is unreachable"),
        ("flow: f\nactivities:\n  a: {run: x, after: a}", 2, "it has no trigger"),
        ("flow: a\x00b", 1, "it is not valid YAML"),
        ("flow: \ud800", 1, "not valid Unicode"),
        ("flow: f\nactivities: " + "[" * 200, 2, "nest at most"),
        ("flow: " + "x" * documents.LARGEST_BYTES, 1, "bytes, and a flow has at most"),
        ("flow: f\nactivities: [" + "a," * 110_000 + "]", 2, "at most 100,000 values"),
    ],
)
def test_what_is_wrong_with_a_file_is_found(text: str, line: int, said: str) -> None:
    assert any(number == line and said in message for number, message in problems_of(text))


def test_an_alias_bomb_is_refused_without_being_expanded() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    found = problems_of(bomb)
    assert any("aliases such as *a0" in message for _, message in found)


def test_lines_are_those_of_the_keys_also_when_an_activity_has_several() -> None:
    first = with_nodes("it:", "  run: x", "  after:", "    start:", "      when: start.input >", "  queue: ''")
    text = first + with_nodes("  input:", "    a: 1", "    b:", "      - 1", "      - nobody.output").removeprefix(HEAD)
    assert [line for line, _ in problems_of(text)] == [8, 9, 14]


def test_an_activity_may_only_read_what_comes_before_it() -> None:
    head = HEAD + BOTH
    assert "b does not come before it" in problem_of(f"{head}  it: {{run: x, after: a, input: b.output}}")
    assert "b does not come before it" in problem_of(f"{head}  it: {{run: x, after: a, when: b.output}}")
    assert "when a has finished, and b may not" in problem_of(
        f"{head}  it: {{run: x, after: {{a: {{when: b.output}}, b: {{}}}}}}"
    )
    load(f"{head}  it: {{run: x, after: [a, b], when: b.output, input: [a.error, start.input]}}\noutput: it.output")


def test_K8_inside_a_cycle_the_earlier_round_can_be_read() -> None:
    text = with_nodes(
        "a: {run: a, after: start, input: [a.output, b.output, again.input]}",
        "b: {run: b, after: a}",
        "again: {cycle: a, after: b, when: b.output}",
        "other: {run: c, after: start, input: b.output}",
    )
    assert problems_of(text) == [(7, "other: input: b does not come before it, so it may not have run by then")]


def test_fields_that_the_flow_does_not_declare_are_found() -> None:
    text = HEAD + "  it: {run: x, after: start, input: start.input.orderid}\ninput: {order_id: string}"
    assert problem_of(text) == 'it: input: the input of the flow has no "orderid" (did you mean order_id?)'


def test_a_flow_has_at_most_1000_activities() -> None:
    names = [f"n{number}" for number in range(1_000)]
    text = HEAD + "".join(f"  {name}: {{run: x, after: start}}\n" for name in names)
    assert "at most 1,000 activities, not 1,001" in problem_of(text)
    load(text[: text.rindex("  n999")])


def test_a_flow_has_at_most_10000_expressions() -> None:
    inputs = ", ".join(f'"{number}"' for number in range(10_001))
    assert "at most 10,000 expressions, not 10,001" in problem_of(
        with_nodes(f"a: {{run: x, after: start, input: [{inputs}]}}")
    )


def test_warnings_never_hide_that_a_flow_is_wrong() -> None:
    several = "".join(f"  n{number}: {{run: x, after: start, join: any}}\n" for number in range(150))
    wrong = "".join(f"  w{number}: {{run: x, after: nobody_at_all}}\n" for number in range(60))
    with pytest.raises(FlowError) as caught:
        load(HEAD + several + wrong)
    severities = [problem.severity for problem in caught.value.problems]
    assert (severities.count("error"), len(severities), caught.value.left_out) == (60, 100, 0)


def test_very_many_problems_are_counted() -> None:
    text = HEAD + "".join(f"  n{number}: {{run: x, after: strat}}\n" for number in range(500))
    with pytest.raises(FlowError, match="and 400 more"):
        load(text)


def test_a_circle_is_named_once_for_each_of_its_lines() -> None:
    text = with_nodes(
        "a: {run: x, after: [start, c]}", "b: {run: x, after: a}", "c: {run: x, after: b}", "d: {run: x, after: c}"
    )
    found = problems_of(text)
    assert [line for line, _ in found] == [4, 5, 6]
    assert "b -> c -> a -> b" in found[1][1]


def test_a_file_that_cannot_be_read_is_a_flow_error(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="cannot be read"):
        load_file(tmp_path / "none.yaml")
    with pytest.raises(FlowError, match="cannot be read"):
        load_file(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"flow: f\n# \xe9")
    with pytest.raises(FlowError, match=r"latin\.yaml:2: it is not valid UTF-8"):
        load_file(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + HEAD.encode().replace(b"\n", b"\r\n"))
    assert load_file(tmp_path / "bom.yaml").definition.name == "f"


def test_bytes_are_read_as_utf_8_and_other_types_are_refused() -> None:
    assert load_text(HEAD.encode(), "f.yaml").definition.name == "f"
    with pytest.raises(FlowError, match=r"f\.yaml:1: it is not valid UTF-8"):
        load_text(HEAD.encode("utf-16"), "f.yaml")
    given: Any = 5
    with pytest.raises(UsageError, match="from a string or bytes of YAML, not from int"):
        load_text(given, "f.yaml")


@pytest.mark.parametrize(
    "line",
    [
        "output: 2024-01-01",
        'output: "2024-1-1"',
        "output: {day: 2024-01-01}",
        "output: [2024-01-01T10:30:00Z]",
        "output: 2024-01-01 10:30:00.5+02:00",
    ],
)
def test_a_date_without_quotes_of_its_own_is_refused(line: str) -> None:
    [(number, said)] = problems_of(f"{HEAD}{line}\n")
    assert number == 4
    assert "is a date, which CEL reads as a subtraction; a string has quotes of its own: \"'2024-" in said


def test_dates_that_are_texts_and_subtractions_with_spaces_are_fine() -> None:
    fine = f"{HEAD}version: 2024-01-01\noutput: {{a: \"'2024-01-01'\", b: 2024 - 1 - 1, c: start.input.n-1}}\n"
    assert load_text(fine, "f.yaml").warnings == ()


CAUGHT = """\
  work: {run: x, after: start}
  next: {run: x, after: work, input: {y: work.output.y}}
  mend: {run: x, after: {work: {catch: [Exception]}}, input: INPUT}
output: OUTPUT
"""


@pytest.mark.parametrize(
    ("given", "output", "line", "said"),
    [
        ("[]", "work.output.y", 7, "output: if work fails, mend catches that and work.output is null, and so is this;"),
        ("[]", "[mend.output, work.output.y.z]", 7, "output.1: if work fails, mend catches that"),
        (
            "[work.output.y]",
            "1",
            6,
            "mend: input.0: if work fails, mend catches that and work.output is null, so this f",
        ),
    ],
)
def test_reading_the_output_of_a_node_whose_failure_is_caught_is_a_warning(
    given: str, output: str, line: int, said: str
) -> None:
    loaded = load_text(HEAD + CAUGHT.replace("INPUT", given).replace("OUTPUT", output), "f.yaml")
    [warning] = loaded.warnings
    assert (warning.line, warning.severity) == (line, "warning")
    assert said in str(warning)


@pytest.mark.parametrize(
    "output", ["work.output", "next.output.y", "work.error.message", '"work.output == null ? 1 : work.output.y"']
)
def test_an_output_that_expects_a_caught_failure_is_no_warning(output: str) -> None:
    assert load_text(HEAD + CAUGHT.replace("INPUT", "[]").replace("OUTPUT", output), "f.yaml").warnings == ()


def test_messages_show_the_beginning_of_long_values_and_no_control_characters() -> None:
    [(_, said)] = problems_of(f"{HEAD}output: {'9' * 5000}\n")
    assert len(said) < 200
    [(_, said)] = problems_of('flow: f\nactivities:\n  start: {trigger: true}\n  "s\\u202e": {run: x, after: start}\n')
    assert said.isprintable()
    assert "s\\u202e: the id of an activity" in said
    for _, said in problems_of(f"{HEAD}  {'x' * 5000}: {{run: x, after: start}}\n"):
        assert len(said) < 300


KEYS = (
    ["run", "flow", "wait", "cycle", "raise", "interrupt", "trigger", "after", "when", "each", "limit", "input"],
    ["retry", "attempts", "event", "timeout", "timer", "join", "otherwise", "catch", "start", "a", "to", "id"],
)
WORDS = ["start", "a.output", "start.input.x > 1", "1h", "self", "any", "yes", "x.y"]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS[0], *KEYS[1]]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["start", "a", "b", "c", "for"]), JUNK, max_size=5), JUNK)
def test_the_checker_never_crashes_on_junk(activities: object, output: object) -> None:
    document = {"flow": "f", "activities": activities, "output": output}
    with suppress(FlowError):
        graph_of(load(json.dumps(document)))


@given(st.text(st.sampled_from(list("ab:{}[]&*!-|>#'\"\n \t,?%@`\\0")), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(FlowError):
        load(text)


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        (
            "{run: s, after: start}",
            "{run: x, after: start, each: s.responses}",
            "it must come after s, whose responses",
        ),
        ("{run: s, after: start, each: start.input}", "{run: x, after: s, each: s.responses}", "once for each item"),
        ("{run: s, after: start, hold: true}", "{run: x, after: s, each: s.responses}", "s has a hold, so its"),
        ("{run: s, after: start}", "{run: x, after: s, when: 'true', each: s.responses}", "has a condition, which is"),
        ("{run: s, after: start}", "{run: x, after: {s: {catch: E}}, each: s.responses}", "it must come after s"),
        ("{run: s, after: start}", "{run: x, after: [s, start], join: any, each: s.responses}", "use join: all"),
        ("{run: s, after: start}", "{run: x, after: s, each: s.responses, input: s.output}", "read item, not s"),
        ("{wait: {event: e}, after: start}", "{run: x, after: s, each: s.responses}", "s runs no activity"),
    ],
)
def test_K10_responses_that_cannot_be_items_are_refused_with_their_line(source: str, line: str, said: str) -> None:
    ((number, message),) = problems_of(with_nodes(f"s: {source}", f"it: {line}"))
    assert number == 5
    assert said in message


def test_K10_responses_of_an_activity_that_yields_nothing_are_refused_if_that_is_known() -> None:
    text = with_nodes("s: {run: s, after: start}", "it: {run: x, after: s, each: s.responses}")
    known = KnownNames(activities={"s", "x"}, without_stream={"s"})
    assert problems_of(text, known) == [(5, 'it: each: s has no responses, because "s" yields no values')]
    assert load_text(text, "flow.yaml", KnownNames(activities={"s", "x"})).warnings == ()


def test_K11_a_trigger_cannot_be_held() -> None:
    said = "start: it is the trigger, which does nothing that could be held; hold a node after it"
    assert problems_of("flow: f\nactivities:\n  start:\n    trigger: true\n    hold: true\n") == [(5, said)]


def test_K11_a_hold_of_an_interrupt_of_the_instance_itself_is_a_warning() -> None:
    (warning,) = load_text(with_nodes("it: {interrupt: self, after: start, hold: true}"), "flow.yaml").warnings
    assert str(warning) == "it: hold has no effect here: the instance ends when this node runs"


def test_G6_the_policy_for_events_is_one_of_two_words() -> None:
    text = f"event_policy: drop\n{HEAD}"
    assert problem_of(text) == 'event_policy must be one of mailbox, drop_unsubscribed, not "drop"'
