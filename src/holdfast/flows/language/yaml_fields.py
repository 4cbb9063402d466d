"""One map of a flow, read key by key: what is wrong is noted and read as absent; strange keys are told."""

from collections.abc import Collection, Iterator
from typing import Any

from holdfast.authoring.validation import checked_name
from holdfast.core.flow.definition import is_span, span_ms
from holdfast.errors import HoldfastError
from holdfast.flows.language.problems import Problems, printable, quoted
from holdfast.flows.language.yaml_tree import Tree, YamlMapping, YamlScalar, YamlSequence

Places = dict[tuple[str, str], int]
"""The line of each node (with an empty text), and of each expression or argument of it, such as ``input.speed``."""


OTHER_KEYS = {
    "activity": "run", "task": "run", "uses": "run", "args": "input", "with": "input", "if": "when", "needs": "after",
    "depends_on": "after", "condition": "when", "foreach": "each", "for_each": "each", "timeout": "start_to_close",
    "name": "flow", "steps": "activities", "nodes": "activities", "tasks": "activities", "jobs": "activities",
    "catch": "after: {ID: {catch: [ERROR]}}",
}  # fmt: skip
"""What others call what flows have, too."""


class YamlFields:
    """A map that belongs to `node`. `inside` is where in the node it is, such as ``retry``."""

    def __init__(self, tree: YamlMapping, node: str, problems: Problems, places: Places, inside: str = "") -> None:
        self.tree = tree
        self.node = node
        self.problems = problems
        self.places = places
        self._inside = inside
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.tree.entries

    def take(self, key: str) -> Tree | None:
        """What is there, or None if the key is absent."""
        self._asked.add(key)
        return self.tree.entries.get(key)

    def add_problem(self, key: str, message: str, *, suggestion: str = "") -> None:
        """Note a problem with a key, unless its value is what was told already."""
        self.problems.spoil(self.node, self.where(key))
        line = self.tree.lines.get(key, self.tree.line)
        value = self.tree.entries.get(key)
        if was_told(value):
            return
        if isinstance(value, YamlScalar):
            line = value.line
        prefix = f"{self._inside}: " if self._inside else ""
        self.problems.add(line, f"{prefix}{message}", node=self.node, suggestion=suggestion)

    def where(self, key: str) -> str:
        """The name of a place in the node."""
        return f"{self._inside}.{key}" if self._inside else key

    def finish(self, *others: str) -> None:
        """Tell the keys that nobody asked for. `others` are allowed as well."""
        known = {*self._asked, *others}
        for key, line in self.tree.lines.items():
            if key not in known:
                prefix = f"{self._inside}: " if self._inside else ""
                self.problems.add(
                    line,
                    f"{prefix}there is no key {quoted(key)} here",
                    node=self.node,
                    suggestion=self._meant(key, known),
                )

    def _meant(self, key: str, known: Collection[str]) -> str:
        meant = OTHER_KEYS.get(key, "")
        return meant if meant.partition(":")[0] in known else self.problems.closest(key, known)

    def text(self, key: str, what: str = "a text") -> str:
        """A text that is not empty. What is written as a number stays as it was written."""
        value = self.take(key)
        if value is None:
            return ""
        if isinstance(value, YamlScalar) and type(value.value) in {str, int, float} and value.text.strip():
            return value.text
        self.add_problem(key, f"{key} must be {what}, not {shown(value)}")
        return ""

    def name(self, key: str, what: str) -> str:
        """The name of something."""
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
        if value is None:
            return False
        if isinstance(value, YamlScalar) and isinstance(value.value, bool):
            return value.value
        self.add_problem(key, f"{key} must be true or false, not {shown(value)}")
        return False

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        """A whole number."""
        value = self.take(key)
        if value is None:
            return None
        given = whole_number_of(value)
        if given is not None and least <= given <= most:
            return given
        self.add_problem(key, f"{key} must be a whole number from {least:,} to {most:,}, not {shown(value)}")
        return None

    def number(self, key: str, *, least: float) -> float | None:
        """A number."""
        value = self.take(key)
        if value is None:
            return None
        given = value.value if isinstance(value, YamlScalar) else None
        if isinstance(given, int | float) and not isinstance(given, bool) and given >= least:
            return float(given)
        self.add_problem(key, f"{key} must be a number of at least {least:g}, not {shown(value)}")
        return None

    def duration(self, key: str, *, least_ms: int = 0) -> int | None:
        """A duration in milliseconds."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, YamlScalar) or value.value is None:
            self.add_problem(key, f"{key} must be a duration such as 30s, not {shown(value)}")
            return None
        try:
            return span_ms(value.value, key, least_ms=least_ms)
        except ValueError as error:
            self.add_problem(key, str(error))
            return None

    def span_or_expression(self, key: str) -> int | str | None:
        """A duration, or an expression that gives seconds."""
        value = self.tree.entries.get(key)
        if isinstance(value, YamlScalar) and isinstance(value.value, str) and not is_span(value.value):
            return self.expression(key)
        return self.duration(key)

    def expression(self, key: str) -> str:
        """An expression. Whether it can be read is looked at later, with the rest of the flow."""
        value = self.take(key)
        if value is None:
            return ""
        if isinstance(value, YamlScalar) and isinstance(value.value, str) and value.value.strip():
            self.places[self.node, self.where(key)] = value.line
            return value.value
        if isinstance(value, YamlScalar) and isinstance(value.value, bool):
            self.places[self.node, self.where(key)] = value.line
            return "true" if value.value else "false"
        self.add_problem(key, f"{key} must be an expression, not {shown(value)}")
        return ""

    def template(self, key: str) -> Any:
        """JSON in which every text is an expression."""
        value = self.take(key)
        return None if value is None else self._plain(value, self.where(key))

    def _plain(self, tree: Tree, where: str) -> Any:
        self.places[self.node, where] = tree.line
        if isinstance(tree, YamlScalar):
            return tree.value
        if isinstance(tree, YamlSequence):
            return [self._plain(item, f"{where}.{place}") for place, item in enumerate(tree.items)]
        return {key: self._plain(value, f"{where}.{key}") for key, value in tree.entries.items()}

    def strings(self, key: str, what: str) -> tuple[str, ...] | None:
        """A text or a list of texts, at least one."""
        value = self.take(key)
        if value is None:
            return None
        items = value.items if isinstance(value, YamlSequence) else [value]
        found = [
            item.text for item in items if isinstance(item, YamlScalar) and isinstance(item.value, str) and item.text
        ]
        if not found or len(found) != len(items):
            self.add_problem(key, f"{key} must be {what} or a list of them, not {shown(value)}")
            return None
        return tuple(found)

    def word(self, key: str, words: Collection[str]) -> str:
        """One of several words."""
        text = self.text(key, f"one of {', '.join(words)}")
        if text and text not in words:
            self.add_problem(
                key,
                f"{key} must be one of {', '.join(words)}, not {quoted(text)}",
                suggestion=self.problems.closest(text, words),
            )
            return ""
        return text

    def inner(self, key: str, example: str) -> "YamlFields | None":
        """A map inside this one."""
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, YamlMapping):
            return YamlFields(value, self.node, self.problems, self.places, self.where(key))
        self.add_problem(key, f"{key} must be a map such as {example}, not {shown(value)}")
        return None

    def __iter__(self) -> Iterator[str]:
        """The keys that are there."""
        yield from self.tree.entries


def was_told(tree: Tree | None) -> bool:
    """Whether it has already been said why something cannot be read."""
    if isinstance(tree, YamlSequence):
        return any(map(was_told, tree.items))
    return isinstance(tree, YamlScalar) and tree.is_refused


def whole_number_of(tree: Tree | None) -> int | None:
    """A whole number; true and false are none."""
    value = tree.value if isinstance(tree, YamlScalar) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def shown(tree: Tree) -> str:
    """A value inside a message."""
    if isinstance(tree, YamlMapping):
        return "a map"
    if isinstance(tree, YamlSequence):
        return "a list" if tree.items else "an empty list"
    if tree.value is None:
        return "nothing"
    return quoted(tree.text) if isinstance(tree.value, str) else printable(tree.text)
