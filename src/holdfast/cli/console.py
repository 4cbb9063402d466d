"""Texts from a store or from user code, made safe to print: no markup, no control characters, no changed direction."""

import datetime as dt
import math
import os
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Final, cast

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
"""Before what continues a line."""
_SHOWN_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
DELETE: Final = "\x7f"
"""The one control character in ASCII that JSON leaves as it is."""
_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400

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
    """`text` with every character that is not plainly visible shown escaped, and not endless."""
    if len(text) > longest:
        text = f"{text[:longest]}... ({len(text):,} characters)"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(character)[1:-1] if unicodedata.category(character) in _SHOWN_ESCAPED else character for character in text
    )


def safe_lines(text: str, longest: int = LONGEST) -> str:
    """The same, but line breaks stay."""
    return "\n".join(safe(line, longest) for line in text[:longest].splitlines())


def json_text(value: object, *, indented: bool = True) -> str:
    """A value as JSON that a terminal can show: what is not plainly visible is escaped, as JSON escapes it."""
    encoded = msgspec.json.encode(value)
    return visible_json((msgspec.json.format(encoded) if indented else encoded).decode())


def visible_json(text: str) -> str:
    """JSON with every character escaped that is not plainly visible. It means the same."""
    if text.isascii() and DELETE not in text:
        return text
    return "".join(character if character == "\n" else _visible_in_json(character) for character in text)


def _visible_in_json(character: str) -> str:
    if unicodedata.category(character) not in _SHOWN_ESCAPED:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(safe(state), STATE_STYLES.get(state, ""))


def line_width(console: Console) -> int | None:
    """How wide a line may be. None: there is no terminal, and lines stay whole, for programs that search them."""
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


def print_line(console: Console, text: Text, indent: str = "") -> None:
    """Print a line. One that is wider than the terminal is folded between words."""
    width = line_width(console)
    for line in text.split("\n"):
        if width is None or len(indent) + line.cell_len <= width:
            console.print(Text(indent) + line, soft_wrap=True)
            continue
        for number, part in enumerate(line.wrap(console, max(1, width - len(indent) - len(HANGING)))):
            part.rstrip()
            console.print(Text(indent + HANGING * (number > 0)) + part, soft_wrap=True)


def print_aligned(
    console: Console,
    rows: Sequence[Sequence[Text]],
    *,
    right: Container[int] = (),
    below: Mapping[int, Sequence[Text]] | None = None,
) -> None:
    """Rows as columns. Columns for which the terminal is too narrow are lines under each row, with their names.

    The columns in `right` are aligned to the right; the first row is the header. `below`: lines under a row. A last
    column without a name has notes: each is in its row if there is room for it.
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
    """Cells that are not in their row: as many as fit in each line."""
    most = console.width - len(HANGING)
    line = Text()
    for name, cell in zip(names, cells, strict=True):
        if not cell:
            continue
        said = Text.assemble((f"{name.plain} " if name else "", "dim"), cell)
        if line and line.cell_len + GAP + said.cell_len > most:
            print_line(console, line, HANGING)
            line = Text()
        line = Text.assemble(line, " " * GAP, said) if line else said
    if line:
        print_line(console, line, HANGING)


def status_line(status: bytes | None) -> str:
    """What a workflow says of itself: a text as it is, anything else as JSON."""
    if status is None:
        return ""
    try:
        value = msgspec.json.decode(status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
        return "unreadable"
    return safe(value if isinstance(value, str) else status.decode(), LONGEST_STATUS)


def value_text(value: object, longest: int = LONGEST) -> str:
    """A stored value as JSON in one line; of one that is not whole, what is known."""
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
    """The input of a workflow or an activity: its arguments by name."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return safe(", ".join(f"{name}={_json(each)}" for name, each in named.items()), longest)
    if isinstance(value, list):
        return safe(", ".join(map(_json, cast("list[object]", value))), longest)
    return value_text(value, longest)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def clipped(text: Text, width: int | None) -> Text:
    """A line that is no wider than this; None: as it is."""
    if width is not None and text.cell_len > width:
        text = text.copy()
        text.truncate(max(1, width - len("...")))
        text.append("...")
    return text


def count_text(number: int, word: str) -> str:
    """A number of things: ``1 turn``, ``2 activities``."""
    several = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{number:,} {word if number == 1 else several}"


def seconds_text(seconds: float) -> str:
    """A duration as people say it."""
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
    """A stored time, in UTC."""
    try:
        return f"{dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError, TypeError):
        return f"{milliseconds} ms"
