"""Output of the commands: safe text, lines and tables that fit the terminal, and JSON.

Text from a store or from user code may hold markup, control characters or marks that change the direction of writing;
`safe` escapes them. Lines wider than the terminal are folded. Without a terminal lines stay whole, so that programs can
search them, unless the variable COLUMNS is set.
"""

import datetime as dt
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.client.views.instances import Excerpt
from holdfast.core.lifecycle import AttemptState, InstanceState

LONGEST: Final = 2_000
LONGEST_STATUS: Final = 80
GAP: Final = 2
"""Spaces between columns."""
HANGING: Final = " " * 4
"""Before the continuation of a folded line."""
_SHOWN_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
DELETE: Final = "\x7f"
"""The only control character in ASCII that JSON does not escape."""
_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400
T = TypeVar("T")

STATE_STYLES: Final[dict[str, str]] = {
    InstanceState.REQUESTED: "dim",
    InstanceState.RUNNING: "yellow",
    InstanceState.PAUSED: "magenta",
    InstanceState.BLOCKED: "bold red",
    InstanceState.CANCEL_REQUESTED: "magenta",
    InstanceState.COMPLETED: "green",
    InstanceState.FAILED: "red",
    InstanceState.CANCELLED: "magenta",
    InstanceState.TERMINATED: "magenta",
    AttemptState.READY: "dim",
    AttemptState.QUEUED: "dim",
    AttemptState.PREPARING: "yellow",
    AttemptState.CANCELLED_RUNNING: "magenta",
    AttemptState.TIMED_OUT: "red",
}


def safe(text: str, longest: int = LONGEST) -> str:
    """`text` up to `longest` characters, with every invisible character escaped."""
    if len(text) > longest:
        text = f"{text[:longest]}... ({len(text):,} characters)"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(character)[1:-1] if unicodedata.category(character) in _SHOWN_ESCAPED else character for character in text
    )


def safe_lines(text: str, longest: int = LONGEST) -> str:
    """Like `safe`, for text whose line breaks are kept."""
    return "\n".join(safe(line, longest) for line in text[:longest].splitlines())


def json_text(value: object, *, indented: bool = True) -> str:
    """A value as JSON, with every invisible character escaped."""
    encoded = msgspec.json.encode(value)
    return visible_json((msgspec.json.format(encoded) if indented else encoded).decode())


def visible_json(text: str) -> str:
    """The same JSON with every invisible character escaped."""
    if text.isascii() and DELETE not in text:
        return text
    return "".join(character if character == "\n" else _visible_in_json(character) for character in text)


def _visible_in_json(character: str) -> str:
    if unicodedata.category(character) not in _SHOWN_ESCAPED:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def state_text(state: str) -> Text:
    """A state of an instance or an attempt, in its colour."""
    return Text(safe(state), STATE_STYLES.get(state, ""))


def line_width(console: Console) -> int | None:
    """The width of the terminal; None without one, when lines stay whole."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


def print_line(console: Console, text: Text, indent: str = "") -> None:
    """Prints a line, folded between words where it is wider than the terminal."""
    width = line_width(console)
    for line in text.split("\n"):
        if width is None or len(indent) + line.cell_len <= width:
            console.print(Text(indent) + line, soft_wrap=True)
            continue
        for number, part in enumerate(line.wrap(console, max(1, width - len(indent) - len(HANGING)))):
            part.rstrip()
            console.print(Text(indent + HANGING * (number > 0)) + part, soft_wrap=True)


def standard_output(*, is_whole: bool = False) -> Console:
    """The console of a command. `is_whole`: lines are as wide as their values."""
    return Console(highlight=False, width=sys.maxsize if is_whole else None)


def print_message(text: str) -> None:
    """Prints a message on standard error, folded at the width of the terminal."""
    print_line(Console(stderr=True, highlight=False), Text(f"holdfast: {text}"))


@dataclass(frozen=True)  # without slots, so that Column[T](...) works in Python 3.11
class Column(Generic[T]):
    """A column of a table: its name, and the cell of an item."""

    name: str
    cell: Callable[[T], Text | str]
    style: str = ""
    is_right: bool = False
    """Aligned to the right."""
    is_optional: bool = False
    """Left out if all its cells are empty."""


def print_items(
    items: Sequence[T],
    columns: Sequence[Column[T]],
    fields: Callable[[T], Mapping[str, Any]],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Prints the items of a list as JSON or as a table, and `empty` instead of a table without rows."""
    if as_json:
        click.echo(json_text([fields(item) for item in items]))
        return
    console = standard_output()
    if not items:
        print_line(console, Text(empty))
        return
    cells = [[_as_text(column.cell(item), column.style) for item in items] for column in columns]
    shown = [at for at, column in enumerate(columns) if not column.is_optional or any(cells[at])]
    rows = [[Text(columns[at].name) for at in shown]]
    rows += [[cells[at][row] for at in shown] for row in range(len(items))]
    print_aligned(console, rows, right=[place for place, at in enumerate(shown) if columns[at].is_right])


def _as_text(cell: Text | str, style: str) -> Text:
    return Text(safe(cell), style) if isinstance(cell, str) else cell


def print_aligned(
    console: Console,
    rows: Sequence[Sequence[Text]],
    *,
    right: Container[int] = (),
    below: Mapping[int, Sequence[Text]] | None = None,
) -> None:
    """Prints rows as columns; the first row is the header, and the columns in `right` are aligned to the right.

    Columns for which the terminal is too narrow become lines under each row, with their names. A last column without
    a name holds notes, each of which stays in its row if it fits. `below` has further lines by row.
    """
    most = line_width(console)
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    has_notes = not rows[0][-1]
    named = len(widths) - has_notes
    kept = next((n for n in range(named, 1, -1) if most is None or sum(widths[:n]) + GAP * (n - 1) <= most), 1)
    for number, row in enumerate(rows):
        cells = [
            _padded(cell, width, to_right=at in right) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        room = math.inf if most is None else most - sum(widths[:kept]) - GAP * kept
        shown = len(row) if kept == named and has_notes and row[-1].cell_len <= room else kept
        line = Text(" " * GAP, "" if number else "dim").join(cells[:shown])
        line.rstrip()
        console.print(line, soft_wrap=True)
        if number and shown < len(row):
            _print_below(console, rows[0][shown:], row[shown:])
        for note in (below or {}).get(number, ()):
            console.print(note, soft_wrap=True)


def _padded(cell: Text, width: int, *, to_right: bool) -> Text:
    padding = Text(" " * (width - cell.cell_len))
    return padding + cell if to_right else cell + padding


def _print_below(console: Console, names: Sequence[Text], cells: Sequence[Text]) -> None:
    """Prints cells under their row, as many in each line as fit."""
    most = console.width - len(HANGING)
    line = Text()
    for name, cell in zip(names, cells, strict=True):
        if not cell:
            continue
        named = Text.assemble((f"{name.plain} " if name else "", "dim"), cell)
        if line and line.cell_len + GAP + named.cell_len > most:
            print_line(console, line, HANGING)
            line = Text()
        line = Text.assemble(line, " " * GAP, named) if line else named
    if line:
        print_line(console, line, HANGING)


def status_text(status: object, longest: int = LONGEST) -> str:
    """The decoded argument of `hf.set_status`: a string as it is, any other value as JSON."""
    return safe(status, longest) if isinstance(status, str) else value_text(status, longest)


def value_text(value: object, longest: int = LONGEST) -> str:
    """A stored value as JSON in one line; of an `Excerpt` its beginning and length."""
    if not isinstance(value, Excerpt):
        return safe(_json(value), longest)
    if value.reason == "large":
        return "(large: --whole)"
    length = "" if value.length is None else f" ({value.length:,} bytes)"
    beginning = safe(value.text, max(0, longest - len(length) - len("...")))
    return (
        f"unreadable{length}: {beginning}" if value.reason == "unreadable" else f"{value.text and beginning}...{length}"
    )


def arguments_text(value: object, longest: int = LONGEST) -> str:
    """The input of a workflow or an activity, as arguments by name."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return safe(", ".join(f"{name}={_json(each)}" for name, each in named.items()), longest)
    if isinstance(value, list):
        return safe(", ".join(map(_json, cast("list[object]", value))), longest)
    return value_text(value, longest)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def clipped(text: Text, width: int | None) -> Text:
    """The line, cut to a width; None: not cut."""
    if width is not None and text.cell_len > width:
        text = text.copy()
        text.truncate(max(1, width - len("...")))
        text.append("...")
    return text


def count_text(number: int, word: str) -> str:
    """A number with its noun: ``1 turn``, ``2 activities``, ``3 keys``."""
    several = f"{word[:-1]}ies" if word.endswith("y") and word[-2] not in "aeou" else f"{word}s"
    return f"{number:,} {word if number == 1 else several}"


def seconds_text(seconds: float) -> str:
    """A duration in units that suit its length."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def moment_text(milliseconds: int) -> str:
    """A stored time in UTC; one that is out of range as its number."""
    try:
        return f"{dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError, TypeError):
        return f"{milliseconds} ms"
