"""What a flow gives its activities is checked against their parameters, where both are known."""

import sys

import pytest
from tests.unit.flows.writing import problems_of, with_nodes

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.errors import FlowError, UsageError
from holdfast.flows.language.checker import KnownNames, names_in_modules, workflows_in
from holdfast.flows.language.parser import load_text


@hf.activity(name="charge")
def charge(cents: int, card: str, *, note: str = "") -> int:
    return cents + len(card) + len(note)


@hf.workflow
async def shipping() -> None: ...


KNOWN = names_in_modules([], [charge])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{cents: 1, card: \"'c'\", c: 2}", '"charge" has no parameter "c"'),
        ("{cents: 1, card: \"'c'\", nots: \"'n'\"}", '"charge" has no parameter "nots" (did you mean note?)'),
        ("{cents: start.input}", '"charge" needs card, which the input does not have'),
        ("{}", '"charge" needs cents, card, which the input does not have'),
        ("[]", '"charge" needs cents, card, which the input does not have'),
        ("[1]", '"charge" needs card, which the input does not have'),
        ("[1, \"'c'\", \"'n'\"]", '"charge" takes 2 arguments by position, not 3'),
    ],
)
def test_arguments_that_do_not_fit_are_problems_at_load(given: str, said: str) -> None:
    text = with_nodes(f"it: {{run: charge, after: start, input: {given}}}")
    assert problems_of(text, KNOWN) == [(4, f"it: {said}")]
    with pytest.raises(FlowError, match=r"flow\.yaml:4: it: "):
        hf.Flow.parse(text, activities=[charge])


@pytest.mark.parametrize(
    "given",
    [
        "{card: \"'c'\", cents: 1}",
        "{card: \"'c'\", cents: 1, note: \"'n'\"}",
        "[1, \"'c'\"]",
        "start.input",
        "5",
    ],
)
def test_what_fits_or_is_not_known_is_not_told(given: str) -> None:
    load_text(with_nodes(f"it: {{run: charge, after: start, input: {given}}}"), "flow.yaml", KNOWN)


def test_the_line_is_that_of_the_argument() -> None:
    text = with_nodes(
        "it:", "  run: charge", "  after: start", "  input:", "    cents: 1", "    card: \"'c'\"", "    c: 2"
    )
    assert problems_of(text, KNOWN) == [(10, 'it: "charge" has no parameter "c"')]


def test_arguments_with_each_are_checked_and_the_item_alone_is_not() -> None:
    text = with_nodes("it: {run: charge, after: start, each: start.input, input: {cents: item}}")
    assert problems_of(text, KNOWN) == [(4, 'it: "charge" needs card, which the input does not have')]
    load_text(with_nodes("it: {run: charge, after: start, each: start.input}"), "flow.yaml", KNOWN)


def test_a_name_that_could_be_two_activities_is_not_judged() -> None:
    twin = hf.activity(name="twin")(charge.fn)
    known = names_in_modules([], [charge, twin])
    assert "charge" in known.signatures
    assert f"{__name__}.charge" in (known.activities or ())
    assert f"{__name__}.charge" not in known.signatures


def test_an_engine_with_a_flow_and_its_activities_checks_them_too() -> None:
    wrong = hf.Flow.parse(with_nodes("it: {run: charge, after: start, input: {cents: 1, c: 2}}"))
    with pytest.raises(UsageError) as caught:
        Registry(flows=[wrong], activities=[charge]).check()
    assert 'it (line 4): "charge" has no parameter "c"; it (line 4): "charge" needs card' in str(caught.value)
    built = hf.Flow("built")
    built.run("it", charge, after=built.trigger("start"), input=[1])
    with pytest.raises(UsageError, match='it: "charge" needs card'):
        Registry(flows=[built]).check()


def test_a_flow_that_is_not_known_is_a_warning_because_another_worker_may_have_it() -> None:
    known = KnownNames(workflows=workflows_in([sys.modules[__name__]]))
    lines = ["a: {flow: shiping, after: start}", "b: {flow: shipping, after: start}", "c: {flow: f, after: start}"]
    (warning,) = load_text(with_nodes(*lines), "flow.yaml", known).warnings
    message = 'a: there is no flow or workflow "shiping" here; the child waits for a worker that has it'
    assert (warning.line, warning.severity) == (4, "warning")
    assert str(warning) == f"{message} (did you mean shipping?)"
    assert load_text(with_nodes(*lines), "flow.yaml").warnings == ()
