"""Texts from a store or from user code, made safe to print: no markup, no control characters, no changed direction."""

import datetime as dt
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Final, cast

import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.client.views import Excerpt
from holdfast.core.lifecycle import AttemptState, InstanceState

LONGEST: Final = 2_000
LONGEST_STATUS: Final = 80
_SHOWN_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
DELETE: Final = "\x7f"
"""The one control character in ASCII that JSON leaves as it is."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

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


def print_aligned(
    console: Console,
    rows: Sequence[Sequence[Text]],
    *,
    right: Container[int] = (),
    below: Mapping[int, Sequence[Text]] | None = None,
) -> None:
    """Rows as columns, each a line that is never broken, so that ids can be copied and lines searched.

    The columns in `right` are aligned to the right; the first row is the header. `below`: lines under a row.
    """
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = Text(style="" if number else "dim")
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - cell.cell_len)
            line.append_text(Text(padding) + cell if column in right else cell + Text(padding))
            line.append("  ")
        line.rstrip()
        console.print(line, soft_wrap=True)
        for note in (below or {}).get(number, ()):
            console.print(note, soft_wrap=True)


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
        named = cast(dict[str, object], value)
        return safe(", ".join(f"{name}={_json(each)}" for name, each in named.items()), longest)
    if isinstance(value, list):
        return safe(", ".join(map(_json, cast(list[object], value))), longest)
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
