"""``holdfast explain``: the meaning of each digit of a ledger, a collation key or a composite of keys.

The names of the activities come from ``--activities``, from a flow in a file or in the store, or from the instance in
the store that has the key.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.console import count_text, json_text, print_line, safe, standard_output
from holdfast.cli.store_option import is_there, read_store, store_path
from holdfast.client.views.flows import read_events
from holdfast.client.views.instances import NEWEST
from holdfast.core import ledger
from holdfast.core.collation import (
    MEANING,
    OPEN,
    PADDING,
    WORD,
    CollationKey,
    Composite,
    Digit,
    decompose,
    is_complete,
    is_error,
    padded,
)
from holdfast.core.flow.definition import ChildAction, FlowDefinition, decode_definition
from holdfast.core.flow.snapshot import version_of
from holdfast.core.ledger import LedgerReading
from holdfast.errors import CollationError, HoldfastError, LedgerError, UsageError
from holdfast.storage.contract import Store
from holdfast.storage.records import InstanceRecord

MOST_SEARCHED: Final = 1_000
"""The newest instances of a store, which are searched for one that has the key."""
FILES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class ActivityNames:
    """The ids of the activities of a key, in its order, and by position those of the keys that it contains."""

    ids: Sequence[str]
    flow: str = ""
    children: Mapping[int, Sequence["ActivityNames | None"]] = field(
        default_factory=dict[int, Sequence["ActivityNames | None"]]
    )

    def child(self, at: int, number: int) -> "ActivityNames | None":
        """The names of one of the children at a position."""
        several = self.children.get(at, ())
        return several[number] if number < len(several) else None


def names_of_flow(composite: Composite, flow: str, store: str | None) -> ActivityNames:
    """The names in a flow: a file, or the name of a flow of which the store has an instance."""
    if flow.endswith(FILES):
        from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

        return _own_names(Flow.load(Path(flow)).definition)

    async def read(opened: Store) -> ActivityNames:
        definition = await _newest_definition(opened, flow)
        if definition is None:
            raise UsageError(f"the store has no instance of a flow {flow!r}; name a file (FILE.yaml), or --activities")
        return await _names(opened, definition, composite) or _own_names(definition)

    return read_store(store, read)


def find_names(composite: Composite, store: str | None) -> ActivityNames | None:
    """The names in the flow of the instance that has the key; None if there is no such flow, or more than one."""
    if store is not None:
        return read_store(store, lambda opened: _names_by_key(opened, composite))
    if not is_there(store_path(store)):
        return None
    try:
        return read_store(store, lambda opened: _names_by_key(opened, composite))
    except HoldfastError:  # the default store need not be readable
        return None


async def _names_by_key(store: Store, composite: Composite) -> ActivityNames | None:
    newest = await store.list_instances(before=NEWEST, limit=MOST_SEARCHED)
    keys = await asyncio.gather(*(store.read_key(record.number) for record in newest))
    found: dict[str, InstanceRecord] = {}
    for record, key in zip(newest, keys, strict=True):
        if key is not None and key.rstrip(PADDING) == composite.digits:
            found.setdefault(record.workflow, record)
    if len(found) != 1:
        return None
    (record,) = found.values()
    definition = await _definition(store, record)
    return None if definition is None else await _names(store, definition, composite)


def _own_names(definition: FlowDefinition) -> ActivityNames:
    return ActivityNames([node.id for node in definition.nodes], definition.name)


async def _names(store: Store, definition: FlowDefinition, composite: Composite) -> ActivityNames | None:
    """The names for a key and for the keys that it contains; None if the flow has another number of activities."""
    if len(definition.nodes) != len(composite.digits):
        return None
    children: dict[int, list[ActivityNames | None]] = {}
    for at, several in composite.children.items():
        action = definition.nodes[at].action
        inner = await _newest_definition(store, action.workflow) if isinstance(action, ChildAction) else None
        if inner is not None:
            children[at] = [await _names(store, inner, child) for child in several]
    return replace(_own_names(definition), children=children)


async def _newest_definition(store: Store, flow: str) -> FlowDefinition | None:
    """The version of a flow on which its newest instance runs."""
    for record in await store.list_instances(before=NEWEST, limit=1, workflow=flow):
        return await _definition(store, record)
    return None


async def _definition(store: Store, record: InstanceRecord) -> FlowDefinition | None:
    digest = version_of(await read_events(store, record))
    stored = await store.read_flow(digest) if digest else None
    return None if stored is None else decode_definition(stored)


Json = str | int | bool | None | list["Json"] | dict[str, "Json"]

STYLES = {
    Digit.PENDING: "dim",
    Digit.STARTED: "bold yellow",
    Digit.ERRORED: "bold red",
    Digit.COMPLETED: "bold green",
    Digit.PAUSED: "bold magenta",
    Digit.RELEASED: "green",
    Digit.SKIPPED: "blue",
}
INDENT = 4


_STYLE_OF = {digit.character: style for digit, style in STYLES.items()}
LONGEST_KEY = 60
"""Digits of a key in a list; holdfast show has all."""


def digits_text(key: str, longest: int | None = None) -> Text:
    """The digits of a key, each in its colour."""
    text = Text()
    for digit in key[:longest]:
        text.append(safe(digit), _STYLE_OF.get(digit, "dim"))
    return text if longest is None or len(key) <= longest else text.append("...", "dim")


@dataclass(frozen=True, slots=True)
class ExplanationRow:
    """Some of the digits, the number of digits before them, and their meaning."""

    before: int
    digits: str
    meaning: str
    style: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """A title, a row for each part and a verdict; and the same as the fields of a JSON object."""

    digits: str
    title: str
    rows: tuple[ExplanationRow, ...]
    verdict: str
    fields: dict[str, Json]

    def show(self, console: Console) -> None:
        """Prints each part under its own digits of the first line."""
        print_line(console, Text.assemble((self.digits, "bold"), "  ", (self.title, "dim")))
        width = max((row.before + len(row.digits) for row in self.rows), default=0)
        for row in self.rows:
            label = " " * row.before + row.digits
            line = Text.assemble((label.ljust(width + 2), row.style), row.meaning)
            print_line(console, Text(" " * (row.depth * INDENT)) + line)
        print_line(console, Text(self.verdict, "bold"))


def explain_ledger(reading: LedgerReading) -> Explanation:
    text = reading.text
    times = "once" if reading.leg1_entries == 1 else f"{reading.leg1_entries} times"
    leg1 = f"leg 1 entered {times}" if reading.leg1_entries else "leg 1 not entered: no worker has claimed it"
    done = "green"
    waits = "dim"
    concluded = "leg 1 concluded: an executor has it" if reading.leg1_concluded else "leg 1 not concluded"
    closed = "leg 2 closed by a final response" if reading.leg2_closed else "leg 2 not closed"
    rows = (
        ExplanationRow(0, text[0], leg1, done if reading.leg1_entries else waits),
        ExplanationRow(1, text[1], concluded, done if reading.leg1_concluded else waits),
        ExplanationRow(2, text[2], closed, done if reading.leg2_closed else waits),
        ExplanationRow(3, text[3:9], f"{count_text(reading.responses_entered, 'response')} entered leg 2", "cyan"),
        ExplanationRow(
            9,
            text[9:],
            f"{count_text(reading.responses_exited, 'response')} left it, with their effects recorded",
            "cyan",
        ),
    )
    fields: dict[str, Json] = {
        "kind": "ledger",
        "digits": text,
        "leg1_entries": reading.leg1_entries,
        "leg1_concluded": reading.leg1_concluded,
        "leg2_closed": reading.leg2_closed,
        "responses_entered": reading.responses_entered,
        "responses_exited": reading.responses_exited,
        "unapplied_responses": reading.unapplied_responses,
        "complete": reading.leg2_closed,
        "sentence": reading.sentence,
    }
    return Explanation(text, "ledger of one attempt of an activity", rows, reading.sentence, fields)


def explain_composite(composite: Composite, names: ActivityNames | None) -> Explanation:
    """A key, with the keys of the children that its activities awaited."""
    text = str(composite)
    rows = _composite_rows(composite, names, 0)
    fields = _composite_fields(composite, names)
    of_flow = f" of the flow {safe(names.flow)}" if names is not None and names.flow else ""
    if composite.children:
        return Explanation(text, f"composite of collation keys{of_flow}", rows, _verdict(composite), fields)
    full = padded(text)
    count = len(text)
    if len(full) > count:
        rows = (*rows, ExplanationRow(0, "0", f"not used ({len(full) - count} times, to fill {WORD} digits)", "dim"))
    title = f"collation key of {'one activity' if count == 1 else f'{count} activities'}{of_flow}"
    return Explanation(full, title, rows, _verdict(composite), fields | {"digits": full})


def _composite_rows(composite: Composite, names: ActivityNames | None, depth: int) -> tuple[ExplanationRow, ...]:
    rows: list[ExplanationRow] = []
    ids = _ids(composite, names)
    width = max(map(len, ids))
    for at, character in enumerate(composite.digits):
        digit = Digit(int(character))
        rows.append(ExplanationRow(0, character, f"{ids[at].ljust(width)}  {MEANING[digit]}", STYLES[digit], depth))
        for number, child in enumerate(composite.children.get(at, ())):
            rows.append(ExplanationRow(0, "1 2", f"the child flow that it awaited ({_word(child)})", "dim", depth + 1))
            rows += _composite_rows(child, None if names is None else names.child(at, number), depth + 1)
    return tuple(rows)


def _composite_fields(composite: Composite, names: ActivityNames | None) -> dict[str, Json]:
    ids = _ids(composite, names)
    activities: list[Json] = []
    for at, character in enumerate(composite.digits):
        row: dict[str, Json] = {
            "activity": ids[at],
            "digit": int(character),
            "meaning": MEANING[Digit(int(character))],
        }
        if children := composite.children.get(at):
            row["children"] = [
                _composite_fields(child, None if names is None else names.child(at, number))
                for number, child in enumerate(children)
            ]
        activities.append(row)
    return {
        "kind": "composite" if composite.children else "collation key",
        "digits": str(composite),
        "complete": is_complete(composite.digits),
        "error": is_error(composite.digits),
        "activities": activities,
        "sentence": _verdict(composite),
    }


def _ids(composite: Composite, names: ActivityNames | None) -> list[str]:
    if names is None:
        return [f"activity {at + 1}" for at in range(len(composite.digits))]
    return [safe(name) for name in names.ids]


def _verdict(composite: Composite) -> str:
    digits = composite.digits
    if not is_complete(digits):
        active = [f"{digits.count(digit.character)} {MEANING[digit]}" for digit in OPEN if digit.character in digits]
        return f"Not complete: {', '.join(active)}."
    children = [child for several in composite.children.values() for child in several]
    if any(not is_complete(child.digits) for child in children):
        return "Complete, but a child flow that it awaited is not: the digits contradict each other."
    if is_error(digits):
        return "Complete, and an activity errored: an error unless an error edge caught it."
    return "Complete: nothing is pending, started or paused, and nothing errored."


def _word(composite: Composite) -> str:
    return "complete" if is_complete(composite.digits) else "not complete"


LONGEST_TEXT = 10_000


def explain(
    digits: str,
    activities: str | None = None,
    flow: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Explain the digits of a ledger or a collation key."""
    explanation = explanation_of(digits, activities, flow, store)
    if as_json:
        click.echo(json_text(explanation.fields))
    else:
        explanation.show(standard_output())


def explanation_of(
    digits: str, activities: str | None, flow: str | None = None, store: str | None = None
) -> Explanation:
    """Recognizes a ledger, a key or a composite, and explains it."""
    text = digits.strip().replace("_", "").replace(" ", "")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{digits!r} is not a row of digits")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{len(text)} digits are more than this command explains ({LONGEST_TEXT})")
    if activities is not None and flow is not None:
        raise UsageError("--activities and --flow both name the activities of the key; give one of them")
    if activities is not None:
        names = ActivityNames([activity.strip() for activity in activities.split(",")])
        return _explain_named(text, names, "--activities")
    if flow is not None:
        return _explain_named(text, names_of_flow(_composite(text, "--flow"), flow, store), "--flow")
    return _explain_unnamed(text, store)


def _is_ledger(value: int) -> bool:
    try:
        ledger.read_ledger(value)
    except LedgerError:
        return False
    return True


def _composite(text: str, option: str) -> Composite:
    try:
        return decompose(text)
    except CollationError as error:
        if _is_ledger(int(text)) and len(text) == ledger.DIGITS:
            raise UsageError(f"{text} is a ledger, not a key: leave out {option}") from error
        raise


def _explain_named(text: str, names: ActivityNames, option: str) -> Explanation:
    composite = _composite(text, option)
    given = composite.digits if composite.children else text
    key = CollationKey.parse(given, names.ids)
    return explain_composite(composite, replace(names, ids=list(key.roster.activities)))


def _explain_unnamed(text: str, store: str | None) -> Explanation:
    """Explains fifteen digits as a ledger if they can be one, and everything else as a key."""
    no_ledger = f"a ledger has {ledger.DIGITS} digits, not {len(text)}"
    if len(text) == ledger.DIGITS:
        try:
            return explain_ledger(ledger.read_ledger(int(text)))
        except LedgerError as error:
            no_ledger = str(error)
    elif len(text) == ledger.DIGITS - 1 and _is_ledger(int(text)):
        raise UsageError(f"if this is a ledger, its first 0 is missing: holdfast explain 0{text}")
    try:
        composite = decompose(text)
        return explain_composite(composite, find_names(composite, store))
    except CollationError as error:
        reasons = f"  As a ledger: {no_ledger}.\n  As a key: {error}."
        raise UsageError(f"these digits are neither a ledger nor a key.\n{reasons}") from error
