"""The fields of one mapping of a flow, each read as the type that the definition needs.

The mapping comes from YAML, and then has lines, or from Python. A value of the wrong type is added to the problems and
read as absent, so that one pass finds every problem.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from holdfast.authoring.validation import checked_name
from holdfast.core.flow.definition import is_list, is_span, span_ms
from holdfast.errors import HoldfastError
from holdfast.flows.language.problems import Places, Problems, printable, quoted
from holdfast.flows.language.yaml_tree import YamlMapping, YamlSequence

ABSENT: Final = object()
_NO_LINES: Final = YamlMapping(0)

OTHER_KEYS: Final = {
    "activity": "run", "task": "run", "uses": "run", "args": "input", "with": "input", "if": "when", "needs": "after",
    "depends_on": "after", "condition": "when", "foreach": "each", "for_each": "each", "timeout": "start_to_close",
    "name": "flow", "steps": "activities", "nodes": "activities", "tasks": "activities", "jobs": "activities",
    "catch": "after: {ID: {catch: [ERROR]}}",
}  # fmt: skip
"""Keys of other workflow languages, and the key of a flow that means the same."""


class Fields:
    """The fields of a mapping that belongs to `node`. `inside` is its place in the node, such as ``retry``.

    `places` receives the lines of expressions.
    """

    def __init__(
        self, values: Mapping[str, Any], node: str, problems: Problems, places: Places | None = None, inside: str = ""
    ) -> None:
        self.values = values
        self.node = node
        self.problems = problems
        self.places: Places = {} if places is None else places
        self.yaml = values if isinstance(values, YamlMapping) else _NO_LINES
        self._inside = inside
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        yield from self.values

    def take(self, key: str) -> Any:
        """The value of `key`, or `ABSENT`."""
        self._read.add(key)
        return self.values.get(key, ABSENT)

    def inner(self, key: str, example: str) -> "Fields | None":
        """The mapping under `key`; None if it is absent or not a mapping."""
        value = self.take(key)
        if isinstance(value, Mapping):
            return self.inside(key, cast("Mapping[str, Any]", value))
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be a mapping such as {example}, not {self.shown(key)}")
        return None

    def inside(self, key: str, values: Mapping[str, Any]) -> "Fields":
        """The fields of a mapping that is under `key`."""
        return Fields(values, self.node, self.problems, self.places, self.place(key))

    def shown(self, key: str) -> str:
        """The value of `key` as messages show it."""
        value = self.values.get(key)
        return shown(value) if value is None else printable(self.yaml.written.get(key, "")) or shown(value)

    def add_problem(self, key: str, message: str, *, suggestion: str = "") -> None:
        """Add a problem with the value of a key, unless the reader of YAML has added one."""
        self.problems.spoil(self.node, self.place(key))
        if key not in self.yaml.refused:
            is_nested = isinstance(self.values.get(key), list | dict)
            lines = self.yaml.key_lines if is_nested else self.yaml.value_lines
            self._add(lines.get(key, self.yaml.line), message, suggestion)

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
                self._add(self.yaml.key_lines.get(key, 0), f"there is no key {quoted(key)} here", suggestion)

    # ---------------------------------------------------------------- values

    def text(self, key: str, what: str = "a string") -> str:
        """A string that is not empty. A number is taken as it was written."""
        value = self.take(key)
        if value is ABSENT:
            return ""
        written = self.yaml.written.get(key) or str(value)
        if type(value) in {str, int, float} and written.strip():
            return written
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
            self.add_problem(key, f"{key} must be an integer from {least:,} to {most:,}, not {self.shown(key)}")
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
            self.places[self.node, self.place(key)] = self.yaml.value_lines.get(key, 0)
            return value if isinstance(value, str) else str(value).lower()
        if value is not ABSENT:
            self.add_problem(key, f"{key} must be an expression, not {self.shown(key)}")
        return ""

    def template(self, key: str) -> Any:
        """JSON in which every string is an expression."""
        value = self.take(key)
        return None if value is ABSENT else self._plain(value, self.place(key), self.yaml.value_lines.get(key, 0))

    def _plain(self, value: Any, place: str, line: int) -> Any:
        """A template without its lines, which `places` receives."""
        self.places[self.node, place] = line
        if isinstance(value, dict):
            lines = value.value_lines if isinstance(value, YamlMapping) else {}
            fields = cast("dict[str, Any]", value).items()
            return {key: self._plain(item, f"{place}.{key}", lines.get(key, 0)) for key, item in fields}
        if isinstance(value, YamlSequence):
            return [
                self._plain(item, f"{place}.{at}", line)
                for at, (item, line) in enumerate(zip(value, value.lines, strict=True))
            ]
        return value

    def strings(self, key: str, what: str) -> tuple[str, ...] | None:
        """A string or a list of strings, at least one."""
        value = self.take(key)
        if value is ABSENT:
            return None
        items = list_of(value)
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


def list_of(value: object) -> list[Any]:
    """`value` itself if it is a list, else a list of it alone."""
    return value if is_list(value) else [value]


def shown(value: object) -> str:
    """A value as messages show it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if value is None:
        return "nothing"
    return quoted(value) if isinstance(value, str) else printable(str(value))
