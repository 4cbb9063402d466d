"""Writes the generated pages of the documentation from tables in the code. A test compares pages and tables."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from holdfast import errors
from holdfast.authoring.activity import Cancelled
from holdfast.core.collation import LEGAL_MOVES, MEANING, WORD, Digit
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1, enter_leg2, exit_leg2, read_ledger
from holdfast.core.lifecycle import ATTEMPT_TABLE, INSTANCE_TABLE
from holdfast.flows.flow import Flow
from tools import trace_step
from tools.citations import Citation, citations, rules

DOCS = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make docs` from the tables in the code. Do not edit. -->\n"


def lifecycle() -> str:
    """The two life cycles, as drawings and as tables."""
    return "\n".join(
        [
            NOTE,
            "# Life cycles",
            "",
            "A transition that is not drawn is refused with an `IllegalTransition`, and nothing changes.",
            "",
            "## An attempt of an activity",
            "",
            "An attempt is one try. A retry, or a reschedule after a lost worker, ends it and opens the next one.",
            "",
            _diagram(ATTEMPT_TABLE),
            "",
            _table(ATTEMPT_TABLE),
            "",
            "## An instance of a workflow",
            "",
            _diagram(INSTANCE_TABLE),
            "",
            _table(INSTANCE_TABLE),
            "",
        ]
    )


def digits() -> str:
    """The ledger's values from the start, and the digits and moves of the collation key."""
    entered, _ = enter_leg1(SEED)
    concluded = conclude_leg1(entered)
    first, _ = enter_leg2(concluded)
    pending = exit_leg2(first, final=False)
    second, _ = enter_leg2(pending)
    steps = {
        "scheduled": SEED,
        "leg 1 entered: claimed from its queue": entered,
        "leg 1 concluded: an executor has it, durably": concluded,
        "leg 2 entered by a response": first,
        "leg 2 exit: it was pending, more will come": pending,
        "leg 2 entered by another response": second,
        "leg 2 exit: it was final": exit_leg2(second, final=True),
    }
    ledger_rows = [
        f"| {step} | `{read_ledger(value).text}` | {read_ledger(value).sentence} |" for step, value in steps.items()
    ]
    digit_rows = [f"| {int(digit)} | {MEANING[digit]} |" for digit in Digit]
    move_rows = [
        f"| {str(move).replace('_', ' ')} | {int(before)} {MEANING[before]} | {int(after)} {MEANING[after]} |"
        for (before, move), after in LEGAL_MOVES.items()
    ]
    return "\n".join(
        [
            NOTE,
            "# Digits",
            "",
            "`holdfast explain` describes both kinds.",
            "",
            "## The ledger of an attempt",
            "",
            "| event | value after | meaning |",
            "|---|---|---|",
            *ledger_rows,
            "",
            "## The collation key of a flow",
            "",
            "| digit | meaning |",
            "|---|---|",
            *digit_rows,
            "",
            "| move | from | to |",
            "|---|---|---|",
            *move_rows,
            "",
        ]
    )


def error_tree() -> str:
    """Every error, below the one it derives from."""
    tree = [*_branches(errors.HoldfastError, 0), "", "Outside of the tree, because it is not an error:", ""]
    return "\n".join([NOTE, "# Errors", "", *tree, *_branches(Cancelled, 0), ""])


def _branches(error: type[BaseException], depth: int) -> list[str]:
    lines = [f"{'  ' * depth}- `{error.__name__}`: {(error.__doc__ or '').splitlines()[0]}"]
    for below in sorted(error.__subclasses__(), key=lambda each: each.__name__):
        if below.__module__ == errors.__name__:
            lines += _branches(below, depth + 1)
    return lines


def rules_index() -> str:
    """Every rule with the modules and the tests that cite it."""
    cited: dict[str, list[Citation]] = {rule: [] for rule in rules()}
    for citation in citations():
        cited.get(citation.rule, []).append(citation)
    lines = [
        NOTE.replace("from the tables in the code", "from the citations in code and tests"),
        "# Index of the rules",
        "",
        "The modules and tests that cite each rule of [the rules](../rules.md). The number after a test module is the",
        "number of its tests whose names have the rule.",
    ]
    for rule, title in rules().items():
        tests = Counter(each.path for each in cited[rule] if each.test and _is_test(each.path))
        modules = sorted(
            {each.path for each in cited[rule] if each.path.startswith("src/") and not _is_test(each.path)}
        )
        lines += ["", f"## {rule} {title}", ""]
        lines += [f"- `{module.removeprefix('src/holdfast/')}`" for module in modules]
        lines += [f"- `{test.removeprefix('src/holdfast/')}` ({count})" for test, count in sorted(tests.items())]
        if lines[-1] == "":
            lines.append("No module and no test cites this rule yet.")
    return "\n".join([*lines, ""])


def _is_test(path: str) -> bool:
    return path.startswith(("tests/", "src/holdfast/testing/conformance/"))


State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


def _diagram(table: Mapping[State, Mapping[Event, State]]) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for state, edges in table.items():
        lines += [f"    {state} --> {after}: {event}" for event, after in edges.items()]
    return "\n".join([*lines, "```"])


def _table(table: Mapping[State, Mapping[Event, State]]) -> str:
    events = list(dict.fromkeys(event for edges in table.values() for event in edges))
    rows = [f"| from | {' | '.join(events)} |", "|---" * (len(events) + 1) + "|"]
    for state, edges in table.items():
        cells = [str(edges.get(event, "")) for event in events]
        rows.append(f"| {state} | {' | '.join(cells)} |")
    return "\n".join(rows)


PAGES: dict[str, Callable[[], str]] = {
    "lifecycle.md": lifecycle,
    "digits.md": digits,
    "errors.md": error_tree,
    "rules-index.md": rules_index,
}

STEPS = "steps.md"
"""Traces of the running engine, which no test compares: a test checks that the folders in the drawings exist."""

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
WAITING = "5636366"
"""The digits of the fox flow while it waits for dinner."""


def drawings() -> dict[str, str]:
    """The drawings of the guide to flows, each made from the flow of its name on that page."""
    page = (GUIDE / "flows.md").read_text(encoding="utf-8")
    blocks = [Flow.parse(block) for block in re.findall(r"```yaml\n(flow: .*?)```", page, re.DOTALL)]
    flows = {flow.name: flow for flow in blocks}
    fox = flows["fox"]
    digits = dict(zip([node.id for node in fox.definition.nodes], WAITING, strict=True))
    key = WAITING.ljust(WORD, Digit.NOT_USED.character)
    return {
        "fox.svg": fox.to_svg(),
        "fox-waiting.svg": fox.to_svg(digits=digits, key=key),
        "order.svg": flows["order"].to_svg(),
    }


def main() -> None:
    """Write every page."""
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/reference/{name}")
    (DOCS / STEPS).write_text(trace_step.page(), encoding="utf-8")
    print(f"docs/reference/{STEPS}")
    for name, drawing in drawings().items():
        (GUIDE / "drawings" / name).write_text(drawing, encoding="utf-8")
        print(f"docs/guide/drawings/{name}")


if __name__ == "__main__":
    main()
