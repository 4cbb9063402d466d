"""Digits taken apart for a person (aligned and coloured) and for a program (JSON)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from holdfast.core.collation import Composite
from holdfast.core.collation.digits import MEANING, OPEN, WORD, Digit, is_complete, is_error, padded
from holdfast.core.ledger import Reading

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


@dataclass(frozen=True, slots=True)
class Row:
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
    rows: tuple[Row, ...]
    verdict: str
    fields: dict[str, Json]

    def show(self, console: Console) -> None:
        """Print it: every part stands under its own digits of the first line."""
        console.print(Text.assemble((self.digits, "bold"), "  ", (self.title, "dim")), soft_wrap=True)
        width = max((row.before + len(row.digits) for row in self.rows), default=0)
        for row in self.rows:
            label = " " * row.before + row.digits
            line = Text.assemble((label.ljust(width + 2), row.style), row.meaning)
            console.print(Text(" " * (row.depth * INDENT)) + line, soft_wrap=True)
        console.print(Text(self.verdict, "bold"), soft_wrap=True)


def explain_ledger(reading: Reading) -> Explanation:
    """Each part of the ledger below its own digits."""
    text = reading.text
    times = "once" if reading.leg1_entries == 1 else f"{reading.leg1_entries} times"
    leg1 = "leg 1 not entered: nobody has claimed it" if not reading.leg1_entries else f"leg 1 entered {times}"
    done, waits = "green", "dim"
    concluded = "leg 1 concluded: an executor has it" if reading.leg1_concluded else "leg 1 not concluded"
    closed = "leg 2 closed by a final response" if reading.leg2_closed else "leg 2 not closed"
    rows = (
        Row(0, text[0], leg1, done if reading.leg1_entries else waits),
        Row(1, text[1], concluded, done if reading.leg1_concluded else waits),
        Row(2, text[2], closed, done if reading.leg2_closed else waits),
        Row(3, text[3:9], f"{_responses(reading.responses_entered)} entered leg 2", "cyan"),
        Row(9, text[9:], f"{_responses(reading.responses_exited)} left it, with their effects recorded", "cyan"),
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


def explain_composite(composite: Composite, ids: Sequence[str] | None) -> Explanation:
    """A key, with the keys of the children that its activities awaited."""
    text = str(composite)
    rows = _composite_rows(composite, ids, 0)
    fields = _composite_fields(composite, ids)
    if composite.children:
        return Explanation(text, "composite of collation keys", rows, _verdict(composite), fields)
    full, count = padded(text), len(text)
    if len(full) > count:
        rows = (*rows, Row(0, "0", f"not used ({len(full) - count} times, to fill {WORD} digits)", "dim"))
    title = f"collation key of {'one activity' if count == 1 else f'{count} activities'}"
    return Explanation(full, title, rows, _verdict(composite), fields | {"digits": full})


def _composite_rows(composite: Composite, ids: Sequence[str] | None, depth: int) -> tuple[Row, ...]:
    rows: list[Row] = []
    names = _names(composite, ids)
    width = max(map(len, names))
    for at, character in enumerate(composite.digits):
        digit = Digit(int(character))
        rows.append(Row(0, character, f"{names[at].ljust(width)}  {MEANING[digit]}", STYLES[digit], depth))
        for child in composite.children.get(at, ()):
            rows.append(Row(0, "1 2", f"the child flow that it awaited ({_word(child)})", "dim", depth + 1))
            rows += _composite_rows(child, None, depth + 1)
    return tuple(rows)


def _composite_fields(composite: Composite, ids: Sequence[str] | None) -> dict[str, Json]:
    names = _names(composite, ids)
    activities: list[Json] = []
    for at, character in enumerate(composite.digits):
        row: dict[str, Json] = {
            "activity": names[at],
            "digit": int(character),
            "meaning": MEANING[Digit(int(character))],
        }
        if children := composite.children.get(at):
            row["children"] = [_composite_fields(child, None) for child in children]
        activities.append(row)
    return {
        "kind": "composite" if composite.children else "collation key",
        "digits": str(composite),
        "complete": is_complete(composite.digits),
        "error": is_error(composite.digits),
        "activities": activities,
        "sentence": _verdict(composite),
    }


def _names(composite: Composite, ids: Sequence[str] | None) -> list[str]:
    return list(ids) if ids is not None else [f"activity {at + 1}" for at in range(len(composite.digits))]


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
