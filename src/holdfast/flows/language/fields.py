"""The fields of one mapping of a flow, each read as the type that the definition needs.

`Fields` checks values; its subclasses provide them, from YAML with line numbers or from Python. A value of the wrong
type is added to the problems and read as absent, so that one pass finds every problem.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from holdfast.authoring.validation import checked_name
from holdfast.core.flow.definition import is_span, span_ms
from holdfast.errors import HoldfastError
from holdfast.flows.language.problems import Problems, printable, quoted

ABSENT: Final = object()

OTHER_KEYS: Final = {
    "activity": "run", "task": "run", "uses": "run", "args": "input", "with": "input", "if": "when", "needs": "after",
    "depends_on": "after", "condition": "when", "foreach": "each", "for_each": "each", "timeout": "start_to_close",
    "name": "flow", "steps": "activities", "nodes": "activities", "tasks": "activities", "jobs": "activities",
    "catch": "after: {ID: {catch: [ERROR]}}",
}  # fmt: skip
"""Keys of other workflow languages, and the key of a flow that means the same."""


class Fields:
    """The fields of a mapping that belongs to `node`. `inside` is its place in the node, such as ``retry``."""

    def __init__(self, values: Mapping[str, object], node: str, problems: Problems, inside: str = "") -> None:
        self.values = values
        self.node = node
        self.problems = problems
        self._inside = inside
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        yield from self.values

    def take(self, key: str) -> Any:
        """The plain value of `key`, or `ABSENT`."""
        self._read.add(key)
        return self.values.get(key, ABSENT)

    def inner(self, key: str, example: str) -> "Fields | None":
        """The mapping under `key`; None if it is absent or not a mapping."""
        value = self.take(key)
        if isinstance(value, Mapping):
            return Fields(cast("Mapping[str, object]", value), self.node, self.problems, self.place(key))
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be a map such as {example}, not {self.shown(key)}")
        return None

    def shown(self, key: str) -> str:
        """The value of `key` as messages show it."""
        return shown(self.values.get(key))

    def written(self, key: str) -> str:
        """A string or a number as it was written."""
        return str(self.values[key])

    def note_line(self, key: str) -> None:
        """Record the line of an expression, where values have lines."""

    def line_of(self, key: str) -> int:
        """The line of a key; 0 where values have no lines."""
        del key
        return 0

    def add_problem(self, key: str, message: str, *, suggestion: str = "") -> None:
        """Add a problem with the value of a key."""
        self.problems.spoil(self.node, self.place(key))
        self._add(self.line_of(key), message, suggestion)

    def _add(self, line: int, message: str, suggestion: str) -> None:
        prefix = f"{self._inside}: " if self._inside else ""
        self.problems.add(line, f"{prefix}{message}", node=self.node, suggestion=suggestion)

    def place(self, key: str) -> str:
        """The place of a key in the node, such as ``retry.initial``."""
        return f"{self._inside}.{key}" if self._inside else key

    def finish(self, *others: str) -> None:
        """Add a problem for each key that was neither read nor is one of `others`."""
        known = {*self._read, *others}
        for key in self:
            if key not in known:
                other = OTHER_KEYS.get(key, "")
                suggestion = other if other.partition(":")[0] in known else self.problems.closest(key, known)
                self._add(self.line_of(key), f"there is no key {quoted(key)} here", suggestion)

    # ---------------------------------------------------------------- values

    def text(self, key: str, what: str = "a text") -> str:
        """A string that is not empty. A number is taken as it was written."""
        value = self.take(key)
        if value is ABSENT:
            return ""
        if type(value) in {str, int, float} and self.written(key).strip():
            return self.written(key)
        self.add_problem(key, f"{key} must be {what}, not {self.shown(key)}")
        return ""

    def name(self, key: str, what: str) -> str:
        """The name of an activity, a flow, a queue or an event."""
        text = self.text(key, f"the name of {what}")
        if text:
            try:
                return checked_name(text, what)
            except HoldfastError as error:
                self.add_problem(key, str(error))
        return ""

    def boolean(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self.take(key)
        if isinstance(value, bool):
            return value
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be true or false, not {self.shown(key)}")
        return False

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        """An integer in a range."""
        value = self.take(key)
        if is_integer(value) and least <= value <= most:
            return int(value)
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be a whole number from {least:,} to {most:,}, not {self.shown(key)}")
        return None

    def number(self, key: str, *, least: float) -> float | None:
        """A number of at least `least`."""
        value = self.take(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= least:
            return float(value)
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be a number of at least {least:g}, not {self.shown(key)}")
        return None

    def duration(self, key: str, *, least_ms: int = 0) -> int | None:
        """A duration in milliseconds."""
        value = self.take(key)
        if value is ABSENT:
            return None
        if not isinstance(value, str | int | float):
            self.add_problem(key, f"{key} must be a duration such as 30s, not {self.shown(key)}")
            return None
        try:
            return span_ms(value, key, least_ms=least_ms)
        except ValueError as error:
            self.add_problem(key, str(error))
            return None

    def span_or_expression(self, key: str) -> int | str | None:
        """A duration, or an expression that gives seconds."""
        value = self.take(key)
        return self.expression(key) if isinstance(value, str) and not is_span(value) else self.duration(key)

    def expression(self, key: str) -> str:
        """An expression. The checker compiles it, with the rest of the flow."""
        value = self.take(key)
        if (isinstance(value, str) and value.strip()) or isinstance(value, bool):
            self.note_line(key)
            return value if isinstance(value, str) else str(value).lower()
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be an expression, not {self.shown(key)}")
        return ""

    def template(self, key: str) -> Any:
        """JSON in which every string is an expression."""
        value = self.take(key)
        return None if value is ABSENT else value

    def strings(self, key: str, what: str) -> tuple[str, ...] | None:
        """A string or a list of strings, at least one."""
        value = self.take(key)
        if value is ABSENT:
            return None
        items: list[object] = value if isinstance(value, list) else [value]
        found = [item for item in items if isinstance(item, str) and item]
        if not found or len(found) != len(items):
            self.add_problem(key, f"{key} must be {what} or a list of them, not {self.shown(key)}")
            return None
        return tuple(found)

    def word(self, key: str, words: Collection[str]) -> str:
        """One of several words."""
        text = self.text(key, f"one of {', '.join(words)}")
        if text and text not in words:
            suggestion = self.problems.closest(text, words)
            message = f"{key} must be one of {', '.join(words)}, not {quoted(text)}"
            self.add_problem(key, message, suggestion=suggestion)
            return ""
        return text


def is_integer(value: object) -> bool:
    """Whether it is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as messages show it."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    return quoted(value) if isinstance(value, str) else printable(str(value))
