"""``holdfast explain``: what the digits of a ledger, a collation key or a composite say.

Digits taken apart for a person (aligned and coloured) and for a program (JSON).

The names of the activities behind the digits of a key: from the flow in a file, or from one that is in the store.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.console import json_text, print_line, safe
from holdfast.cli.store_option import is_there, open_read_only, store_path
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

MOST_LOOKED_AT: Final = 1_000
"""The newest instances of a store, among which one with the key is looked for."""
FILES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class ActivityNames:
    """The ids of the activities of a key, in its order; by position those of the children that are inside."""

    ids: Sequence[str]
    flow: str = ""
    children: Mapping[int, Sequence["ActivityNames | None"]] = field(
        default_factory=dict[int, Sequence["ActivityNames | None"]]
    )

    def child(self, at: int, number: int) -> "ActivityNames | None":
        """Those of a child of the activity at this position."""
        several = self.children.get(at, ())
        return several[number] if number < len(several) else None


def names_of_flow(composite: Composite, flow: str, store: str | None) -> ActivityNames:
    """The names in a flow: a file, or the name of one that the store has an instance of."""
    if flow.endswith(FILES):
        from holdfast.flows.flow import Flow  # noqa: PLC0415 - reading flows needs libraries that nothing else does

        definition = Flow.load(Path(flow)).definition
        return ActivityNames([node.id for node in definition.nodes], definition.name)
    return asyncio.run(_of_flow(composite, flow, store))


def find_names(composite: Composite, store: str | None) -> ActivityNames | None:
    """The names in the flow that has an instance with this key; None if there is none, or no store, or several."""
    place = store_path(store)
    if store is None and not is_there(place):
        return None
    if store is not None:
        return asyncio.run(_of_key(composite, store))
    with suppress(HoldfastError):  # nobody has asked for this store
        return asyncio.run(_of_key(composite, store))
    return None


async def _of_flow(composite: Composite, flow: str, store: str | None) -> ActivityNames:
    opened = open_read_only(store)
    try:
        definition = await _newest(opened, flow)
        if definition is None:
            raise UsageError(f"the store has no instance of a flow {flow!r}; name a file (FILE.yaml), or --activities")
        found = await _names(opened, definition, composite)
    finally:
        await opened.close()
    return found or ActivityNames([node.id for node in definition.nodes], definition.name)  # whose number does not fit


async def _of_key(composite: Composite, store: str | None) -> ActivityNames | None:
    opened = open_read_only(store)
    try:
        newest = await opened.list_instances(before=NEWEST, limit=MOST_LOOKED_AT)
        keys = await asyncio.gather(*(opened.read_key(record.number) for record in newest))
        found: dict[str, InstanceRecord] = {}
        for record, key in zip(newest, keys, strict=True):
            if key is not None and key.rstrip(PADDING) == composite.digits:
                found.setdefault(record.workflow, record)
        if len(found) != 1:
            return None
        (record,) = found.values()
        definition = await _of_instance(opened, record)
        return None if definition is None else await _names(opened, definition, composite)
    finally:
        await opened.close()


async def _names(store: Store, definition: FlowDefinition, composite: Composite) -> ActivityNames | None:
    """The names in a key and in those inside it; None if it is no key of this version of the flow."""
    if len(definition.nodes) != len(composite.digits):
        return None
    children: dict[int, list[ActivityNames | None]] = {}
    for at, several in composite.children.items():
        action = definition.nodes[at].action
        inner = await _newest(store, action.workflow) if isinstance(action, ChildAction) else None
        if inner is not None:
            children[at] = [await _names(store, inner, child) for child in several]
    return ActivityNames([node.id for node in definition.nodes], definition.name, children)


async def _newest(store: Store, flow: str) -> FlowDefinition | None:
    """The version of a flow that its newest instance stays with."""
    for record in await store.list_instances(before=NEWEST, limit=1, workflow=flow):
        return await _of_instance(store, record)
    return None


async def _of_instance(store: Store, record: InstanceRecord) -> FlowDefinition | None:
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
"""Digits of a key that are shown in a list; holdfast show has them all."""


def digits_text(key: str, longest: int | None = None) -> Text:
    """The digits of a key, each in the colour of what it says."""
    text = Text()
    for digit in key[:longest]:
        text.append(safe(digit), _STYLE_OF.get(digit, "dim"))
    return text if longest is None or len(key) <= longest else text.append("...", "dim")


@dataclass(frozen=True, slots=True)
class ExplanationRow:
    """Some of the digits, where they stand in the whole, and what they say."""

    before: int
    digits: str
    meaning: str
    style: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """A title, a row for each part, a verdict; and all of it as JSON fields."""

    digits: str
    title: str
    rows: tuple[ExplanationRow, ...]
    verdict: str
    fields: dict[str, Json]

    def show(self, console: Console) -> None:
        """Print it: every part stands under its own digits of the first line."""
        print_line(console, Text.assemble((self.digits, "bold"), "  ", (self.title, "dim")))
        width = max((row.before + len(row.digits) for row in self.rows), default=0)
        for row in self.rows:
            label = " " * row.before + row.digits
            line = Text.assemble((label.ljust(width + 2), row.style), row.meaning)
            print_line(console, Text(" " * (row.depth * INDENT)) + line)
        print_line(console, Text(self.verdict, "bold"))


def explain_ledger(reading: LedgerReading) -> Explanation:
    """Each part of the ledger below its own digits."""
    text = reading.text
    times = "once" if reading.leg1_entries == 1 else f"{reading.leg1_entries} times"
    leg1 = "leg 1 not entered: nobody has claimed it" if not reading.leg1_entries else f"leg 1 entered {times}"
    done, waits = "green", "dim"
    concluded = "leg 1 concluded: an executor has it" if reading.leg1_concluded else "leg 1 not concluded"
    closed = "leg 2 closed by a final response" if reading.leg2_closed else "leg 2 not closed"
    rows = (
        ExplanationRow(0, text[0], leg1, done if reading.leg1_entries else waits),
        ExplanationRow(1, text[1], concluded, done if reading.leg1_concluded else waits),
        ExplanationRow(2, text[2], closed, done if reading.leg2_closed else waits),
        ExplanationRow(3, text[3:9], f"{_responses(reading.responses_entered)} entered leg 2", "cyan"),
        ExplanationRow(
            9, text[9:], f"{_responses(reading.responses_exited)} left it, with their effects recorded", "cyan"
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
    full, count = padded(text), len(text)
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
        return "Complete, but a child flow that it awaited is not: the digits do not fit together."
    if is_error(digits):
        return "Complete, and an activity errored: an error unless an error edge caught it."
    return "Complete: nothing is pending, started or paused, and nothing errored."


def _word(composite: Composite) -> str:
    return "complete" if is_complete(composite.digits) else "not complete"


def _responses(count: int) -> str:
    return "1 response" if count == 1 else f"{count} responses"


LONGEST_TEXT = 10_000


def explain(
    digits: str,
    activities: str | None = None,
    flow: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Say what the digits of a ledger or a collation key mean.

    The activities of a key have their names if an instance in the store has this key, or if `flow` or `activities`
    says whose key it is.
    """
    explanation = explanation_of(digits, activities, flow, store)
    if as_json:
        click.echo(json_text(explanation.fields))
    else:
        explanation.show(Console(highlight=False))


def explanation_of(
    digits: str, activities: str | None, flow: str | None = None, store: str | None = None
) -> Explanation:
    """Find out which kind of digits these are, and take them apart."""
    text = digits.strip().replace("_", "").replace(" ", "")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{digits!r} is not a row of digits")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{len(text)} digits are more than this command explains ({LONGEST_TEXT})")
    if activities is not None and flow is not None:
        raise UsageError("--activities and --flow both say whose key it is; give one of them")
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
    """Fifteen digits that are a possible ledger are one; a key of three activities needs their names."""
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
        raise UsageError(f"these digits say nothing.\n  As a ledger: {no_ledger}.\n  As a key: {error}.") from error
