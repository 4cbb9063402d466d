"""What the tests of flows share: samples, and short ways to write a flow."""

from pathlib import Path

import pytest

from holdfast.core.flow.definition import FlowDefinition, Node
from holdfast.errors import FlowError
from holdfast.flows.language.checker import KnownNames
from holdfast.flows.language.parser import load_text

SAMPLES = Path(__file__).parent / "samples"
HEAD = "flow: f\nactivities:\n  start: {trigger: true}\n"


def load(text: str) -> FlowDefinition:
    return load_text(text, "flow.yaml").definition


def node(line: str, before: str = "") -> Node:
    """The node of the only line after a trigger."""
    definition = load(f"{HEAD}{before}  it: {line}\n")
    return next(one for one in definition.nodes if one.id == "it")


def problems_of(text: str, known: KnownNames | None = None) -> list[tuple[int, str]]:
    with pytest.raises(FlowError) as caught:
        load_text(text, "flow.yaml", known)
    for problem in caught.value.problems:
        assert f"flow.yaml:{problem.line}: {problem}" in str(caught.value).splitlines()
    return [(problem.line, str(problem)) for problem in caught.value.problems]


def problem_of(text: str) -> str:
    ((_, message),) = problems_of(text)
    return message


def with_nodes(*lines: str) -> str:
    """A flow with a trigger and these activities, each on a line of its own from the fourth."""
    return HEAD + "".join(f"  {line}\n" for line in lines)


BOTH = "  a: {run: a, after: start}\n  b: {run: b, after: start}\n"
"""Two activities after the trigger."""
