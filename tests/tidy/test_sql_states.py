"""Every state that an SQL statement sets is a state of `core.lifecycle`, and every move is in its tables (A1, A9)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from tools.citations import ROOT, RULES_PAGE

from holdfast.core.activity_events import ReportState
from holdfast.core.leases import WorkerState
from holdfast.core.lifecycle import ATTEMPT_TABLE, INSTANCE_TABLE, AttemptState, InstanceState
from holdfast.core.updates import UpdateState
from holdfast.storage.records import RequestState

STORAGE = ROOT / "src" / "holdfast" / "storage"
STATES: dict[str, type[StrEnum]] = {
    "attempts": AttemptState,
    "instances": InstanceState,
    "workers": WorkerState,
    "updates": UpdateState,
    "requests": RequestState,
    "activity_events": ReportState,
}
OUTSIDE = {"updates", "requests", "activity_events"}
"""Tables whose rows have states of their own, which are not a life cycle of the two tables."""
MOVES: dict[str, set[tuple[str, str]]] = {
    "attempts": {(state, after) for state, edges in ATTEMPT_TABLE.items() for after in edges.values()},
    "instances": {(state, after) for state, edges in INSTANCE_TABLE.items() for after in edges.values()},
    "workers": {("ACTIVE", "INACTIVE")},
}
FIRST_STATES = {"attempts": {"REQUESTED", "READY"}, "instances": {"REQUESTED"}, "workers": {"ACTIVE"}}

PARAMETERS = {
    "move_attempt": "compares the state that `next_state` was given",
    "request_cancel": "compares the state that `next_state` was given",
    "resume_instance": "compares the state that `next_state` was given",
    "terminate_instance": "compares the state that `next_state` was given",
    "save_external_attempt": "compares the state that `next_state` was given",
    "close_instance": "follows `commit_turn` of the owner in the same transaction; the turn has the final state",
    "insert_attempt": "opens an attempt: READY, or RUNNING if the inserting worker runs it (A3)",
    "start_instance": "creates an instance: REQUESTED, or in the state after its first turn",
    "start_numbered": "creates an instance: REQUESTED, or in the state after its first turn",
}
"""Statements that take the state as a parameter, with the reason that the moves are legal."""
UNGUARDED = {"close_instance"}
"""Statements that set a state and do not compare the state before."""


@dataclass(frozen=True, slots=True)
class Change:
    """One statement that sets the state of rows of a table. `before`: the states that its condition names."""

    name: str
    table: str
    value: str
    condition: str

    @property
    def before(self) -> set[str]:
        named = re.findall(r"(?<![\w.])\+?state = '(\w+)'", self.condition)
        for group in re.findall(r"(?<![\w.])\+?state IN \(([^)]*)\)", self.condition):
            named += re.findall(r"'(\w+)'", group)
        return set(named)

    @property
    def is_parameter(self) -> bool:
        return self.value.startswith(("?", "_given["))

    def moves(self) -> set[tuple[str, str]]:
        """From and to. A state that stays as it is makes no move."""
        if literal := re.fullmatch(r"'(\w+)'", self.value):
            pairs = {(state, literal.group(1)) for state in self.before}
        else:
            case = re.fullmatch(r"CASE state((?: WHEN '\w+' THEN '\w+')+) ELSE (state|'\w+') END", self.value)
            assert case, f"{self.name} sets the state to {self.value}, which this test cannot read"
            pairs = set(re.findall(r"WHEN '(\w+)' THEN '(\w+)'", case.group(1)))
            other = case.group(2).strip("'")
            rest = self.before - {state for state, _ in pairs}
            pairs |= {(state, other) for state in rest if other != "state"}
        return {(state, after) for state, after in pairs if state != after}


def statements() -> Iterator[tuple[str, str]]:
    """Every statement file, and every statement of the functions that the migrations create, as one line each."""
    for path in sorted(STORAGE.glob("*/sql/*.sql")):
        yield path.stem, " ".join(_without_comments(path).split())
    for path in sorted(STORAGE.glob("postgres/migrations/*.sql")):
        for place, line in enumerate(_without_comments(path).splitlines(), 1):
            if line.startswith((" " * 12 + "UPDATE", " " * 12 + "INSERT", " " * 12 + "PERFORM")):
                yield f"{path.stem}:{place}", line.strip().rstrip(";")


def _without_comments(path: Path) -> str:
    return "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("--"))


def _parts(text: str) -> list[str]:
    """A list that is separated by commas, cut at those that are outside of parentheses and brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def changes() -> list[Change]:
    found: list[Change] = []
    for name, text in statements():
        for update in re.finditer(r"UPDATE (\w+) SET (.*?)(?: WHERE (.*))?$", text):
            table, assignments, condition = update.groups()
            found += [
                Change(name, table, assigned.removeprefix("state = "), condition or "")
                for assigned in _parts(assignments)
                if assigned.startswith("state = ")
            ]
    return found


def inserts() -> list[Change]:
    found: list[Change] = []
    for name, text in statements():
        insert = re.match(r"INSERT INTO (\w+) \(([^)]*)\) VALUES \((.*?)\)(?: ON CONFLICT| RETURNING|$)", text)
        columns = _parts(insert.group(2)) if insert else []
        if insert and "state" in columns:
            values = _parts(insert.group(3))
            assert len(values) == len(columns), name
            found.append(Change(name, insert.group(1), values[columns.index("state")], ""))
    return found


def columns(text: str) -> tuple[str, ...]:
    """The verb and table of a statement with the columns that it writes, by which a statement is recognized."""
    insert = re.match(r"(INSERT INTO \w+) \(([^)]*)\)", text)
    if insert:
        return (insert.group(1), *_parts(insert.group(2)))
    update = re.match(r"(UPDATE \w+) SET (.*?)(?: WHERE .*)?$", text)
    return (update.group(1), *(part.split(" = ")[0] for part in _parts(update.group(2)))) if update else ()


def original(name: str) -> str:
    """The statement whose text a function of a migration has; the name itself for a statement file.

    The function of an earlier release lacks the columns that were appended since.
    """
    texts = dict(statements())
    written = columns(texts[name])
    same = [known for known in PARAMETERS if written and columns(texts[known])[: len(written)] == written]
    return same[0] if same and ":" in name else name


ALL = changes()


def test_the_statements_are_found() -> None:
    """The parser of this test finds what it is for: all tables, files and functions."""
    assert {change.table for change in ALL} == set(STATES)
    assert {"run_attempt", "block_instance", "claim_blocked", "mark_worker_lost"} <= {change.name for change in ALL}
    assert any(":" in change.name for change in ALL)
    assert {change.table for change in inserts()} == {"attempts", "instances", "workers", "updates"}
    lines = [text for _, text in statements() if re.search(r"\bSET\b.*(?<!\+)(?<!WHEN )(?<!AND )\bstate = ", text)]
    assert len(lines) >= len(ALL)


@pytest.mark.parametrize("change", ALL, ids=lambda change: change.name)
def test_A1_A9_a_statement_makes_moves_of_the_table_only(change: Change) -> None:
    if change.table in OUTSIDE:
        return  # its values are checked below
    if change.is_parameter:
        assert original(change.name) in PARAMETERS, "name the reason that the moves are legal"
        is_guarded = re.search(r"(?<![\w.])\+?state = (\?|_given)", change.condition)
        assert is_guarded or original(change.name) in UNGUARDED
        return
    moves = change.moves()
    assert moves, "the condition does not name the states that the statement changes"
    assert moves <= MOVES[change.table]


@pytest.mark.parametrize("change", inserts(), ids=lambda change: change.name)
def test_A9_a_row_begins_in_a_first_state(change: Change) -> None:
    if change.is_parameter:
        assert change.table == "updates" or original(change.name) in PARAMETERS
    elif change.table in FIRST_STATES:
        assert change.value.strip("'") in FIRST_STATES[change.table]


def test_every_state_that_a_statement_names_exists() -> None:
    wrong: list[str] = []
    for name, text in statements():
        tables = [table for table in STATES if re.search(rf"\b{table}\b", text)]
        known = {str(state) for table in tables for state in STATES[table]}
        named = re.findall(r"\bstate (?:=|<>) '(\w+)'", text)
        for group in re.findall(r"\bstate (?:NOT )?IN \(([^)]*)\)", text):
            named += re.findall(r"'(\w+)'", group)
        for case in re.findall(r"CASE state (.*?) END", text):
            named += re.findall(r"(?:WHEN|THEN|ELSE) '(\w+)'", case)
        wrong += [f"{name}: {state}" for state in named if state not in known]
    wrong += [f"{each.name}: {each.value}" for each in inserts() if not each.is_parameter and not _exists(each)]
    assert not wrong


def _exists(change: Change) -> bool:
    return change.value.strip("'") in {str(state) for state in STATES[change.table]}


def test_every_statement_with_a_reason_is_there() -> None:
    names = {change.name for change in (*ALL, *inserts()) if change.is_parameter}
    assert names >= PARAMETERS.keys()


# ---------------------------------------------------------------- the tables of the page of rules


def _table(head: str) -> list[list[str]]:
    lines = RULES_PAGE.read_text("utf-8").split(head)[1].splitlines()[2:]
    rows = [line for line in lines[: lines.index("")] if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_A1_the_page_has_the_transitions_of_attempts() -> None:
    head = "| Current state | cancel | ready | queue | prepare | run | release | fail | complete | stopped | expire |"
    events = [cell.strip() for cell in head.strip("|").split("|")][1:]
    page = {
        (state, event): state if after == "no change" else after
        for states, *cells in _table(head)
        for state in states.split(", ")
        for event, after in zip(events, cells, strict=True)
        if after != "-"
    }
    code = {
        (str(state), str(event)): str(after) for state, edges in ATTEMPT_TABLE.items() for event, after in edges.items()
    }
    assert page == code


def test_A9_the_page_has_the_moves_of_instances() -> None:
    names = "|".join(InstanceState)
    page = {
        (state, after)
        for states, cell in _table("| Current state | Legal next states |")
        for state in states.split(", ")
        for after in re.findall(rf"\b({names})\b", cell)
    }
    assert page == MOVES["instances"]
