"""Writes the pages of the documentation that are generated from the code. A test checks that they are current."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import click
from benchmarks import recorded

from holdfast import errors
from holdfast.authoring.activity import Cancelled
from holdfast.cli.commands import root
from holdfast.cli.declarations import EXIT_CODES, VARIABLES, Argument, CliCommand, Group
from holdfast.core.collation import LEGAL_MOVES, MEANING, WORD, Digit
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1, enter_leg2, exit_leg2, read_ledger
from holdfast.core.lifecycle import ATTEMPT_TABLE, INSTANCE_TABLE
from holdfast.flows.flow import Flow
from tools import trace_step
from tools.api_reference import api_page
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
            "Every other transition is refused with an `IllegalTransition`, and changes nothing.",
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


def command_line() -> str:
    """Every command with its arguments, options and defaults; environment variables and exit codes."""
    commands = [*_commands(root, "holdfast")]
    lines = [
        NOTE.replace("the tables in the code", "the declarations in `cli/commands.py`"),
        "# The command line",
        "",
        f"{root.help} Each command has `--help`.",
        "`--store` describes how a command finds its store; only `run`, `flow run` and `worker` create one that does",
        "not exist. With `--json`, standard output has JSON and nothing else.",
        "",
        "| command | what it does |",
        "|---|---|",
        *(f"| [`{name}`](#{name.replace(' ', '-')}) | {command.summary} |" for name, command in commands),
        "",
        "Options without a command:",
        "",
        *_option_table(root),
    ]
    for name, command in commands:
        lines += ["", f"## {name}", "", command.summary]
        lines += ["", command.details] if command.details else []
        usage = command.collect_usage_pieces(click.Context(command))
        lines += ["", "```text", " ".join([name, *usage]), "```"]
        arguments = [param for param in command.params if isinstance(param, Argument)]
        if arguments:
            rows = [f"| `{_cell(param.human_readable_name)}` | {_cell(param.summary)} |" for param in arguments]
            lines += ["", "| argument | meaning |", "|---|---|", *rows]
        lines += ["", *_option_table(command)]
        lines += ["", "```sh", command.examples, "```"] if command.examples else []
    lines += ["", "## Environment variables", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join([*lines, "", "[Exit codes](exit-codes.md) has examples.", ""])


def _commands(group: Group, name: str) -> Iterator[tuple[str, CliCommand]]:
    for command in group.commands.values():
        if isinstance(command, Group):
            yield from _commands(command, f"{name} {command.name}")
        elif isinstance(command, CliCommand):
            yield f"{name} {command.name}", command


def _option_table(command: click.Command) -> list[str]:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for param in command.params:
        if not isinstance(param, click.Option) or param.hidden:
            continue
        names = [*param.opts, *param.secondary_opts]
        is_flag = param.is_flag or bool(param.secondary_opts)
        shown = ", ".join(f"`{name}`" for name in sorted(names, key=len)) + (
            "" if is_flag else f" `{_cell(param.metavar or '')}`"
        )
        default = "" if is_flag and not param.secondary_opts else _default(param)
        rows.append(f"| {shown} | {default} | {_cell(param.help or '')} |")
    return rows


def _default(param: click.Option) -> str:
    value = param.get_default(click.Context(click.Command("x")))
    if param.secondary_opts:
        return f"`{(param.opts if value else param.secondary_opts)[0]}`"
    return f"`{value}`" if isinstance(value, str | int | float) else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
    "cli.md": command_line,
    "api.md": lambda: api_page(NOTE),
    "rules-index.md": rules_index,
}

ARCHITECTURE = DOCS.parent / "architecture.md"


def architecture() -> str:
    """The architecture page, its drawing of the layers replaced by the import contract of pyproject.toml."""
    settings = tomllib.loads((DOCS.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [each["layers"] for each in settings["tool"]["importlinter"]["contracts"] if "exhaustive" in each]
    rows = [re.findall(r"(?<!\()\b\w+\b(?!\))", layer) for layer in layers]
    lines = ["```mermaid", "flowchart TD"]
    for number, row in enumerate(rows):
        lines.append(f'    L{number}["{" · ".join(row)}"]')
    lines += [f"    L{number} --> L{number + 1}" for number in range(len(rows) - 1)]
    drawing = "\n".join([*lines, "```"])
    page = ARCHITECTURE.read_text(encoding="utf-8")
    return re.sub(r"(?<=<!-- layers -->\n).*?(?=<!-- /layers -->)", f"{drawing}\n", page, flags=re.DOTALL)


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
    ARCHITECTURE.write_text(architecture(), encoding="utf-8")
    print("docs/architecture.md")
    (DOCS / STEPS).write_text(trace_step.page(), encoding="utf-8")
    print(f"docs/reference/{STEPS}")
    for path, text in recorded.files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parents[1]))
    for name, drawing in drawings().items():
        (GUIDE / "drawings" / name).write_text(drawing, encoding="utf-8")
        print(f"docs/guide/drawings/{name}")


if __name__ == "__main__":
    main()
