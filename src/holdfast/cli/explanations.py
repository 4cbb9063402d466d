"""Digits taken apart for a person (aligned and coloured) and for a program (JSON)."""

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from holdfast.cli.key_names import ActivityNames
from holdfast.cli.texts import print_line, safe
from holdfast.core.collation import Composite
from holdfast.core.collation.digits import MEANING, OPEN, WORD, Digit, is_complete, is_error, padded
from holdfast.core.ledger import LedgerReading

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
