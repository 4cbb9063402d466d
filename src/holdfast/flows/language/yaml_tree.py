"""Reads YAML safely into plain values with line numbers: no tags, no aliases, bounded.

PyYAML's parser in C makes the events; none of its constructors turn them into objects (decision 23). Plain scalars are
read as in YAML 1.2, except those that YAML 1.1 reads as true or false (`on`, `yes`): they are refused, because readers
differ.
"""

import math
import re
from typing import Any, Final, NamedTuple

from holdfast.errors import FlowError
from holdfast.flows.language.problems import Problems, printable, quoted
from holdfast.flows.libraries import yaml

LARGEST_BYTES: Final = 1_000_000
MOST_VALUES: Final = 100_000
DEEPEST: Final = 32

_WORDS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
} | dict.fromkeys(["", "~", "null", "Null", "NULL"])
_AMBIGUOUS: Final = {word for plain in ("yes", "no", "on", "off") for word in (plain, plain.title(), plain.upper())}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NUMBER_BEGINS: Final = frozenset("0123456789-+.")
_TERMS: Final = {
    "a flow mapping": "a mapping in { }", "a flow sequence": "a list in [ ]", "a block mapping": "a mapping",
    "a block collection": "a list", "a block sequence": "a list",
}  # fmt: skip
"""The parser's names of collections. A flow is something else here."""
_MERGE: Final = "<<"
"""The merge key of YAML 1.1."""


class YamlSequence(list[Any]):
    """A list, with the lines of its items. `is_refused`: an item has a problem that was added already."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []
        self.is_refused = False


class YamlMapping(dict[str, Any]):
    """A mapping, with the line of each key and of its value."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.key_lines: dict[str, int] = {}
        self.value_lines: dict[str, int] = {}
        self.written: dict[str, str] = {}
        """Scalars that are not strings, as they were written."""
        self.refused: set[str] = set()
        """Keys whose value has a problem that was added already."""
        self.is_partial = False
        """Whether it has a merge key."""


class YamlValue(NamedTuple):
    """A value, its line, and for a scalar its text. `is_refused`: its problem was added already."""

    value: Any
    line: int
    text: str = ""
    is_refused: bool = False


def is_text(plain: str) -> bool:
    """Whether a scalar without quotes is read as a string."""
    return plain not in _WORDS and plain not in _AMBIGUOUS and not _NUMBER.fullmatch(plain)


def read_document(text: str, problems: Problems) -> YamlValue | None:
    """The only document in `text`, or None if it cannot be read. Problems are added to `problems`."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        problems.add(1, "it is not valid Unicode")
        return None
    if size > LARGEST_BYTES:
        problems.add(1, f"it has {size:,} bytes, and a flow has at most {LARGEST_BYTES:,}")
        return None
    loader: Any = yaml.CBaseLoader(text.removeprefix("\ufeff"))
    try:
        return _Builder(loader, problems).document()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problems.add(min(line, text.count("\n") + 1), _syntax(error))
    except yaml.YAMLError as error:  # a character that YAML does not allow
        problems.add(1, f"it is not valid YAML: {' '.join(str(error).split())}")
    except _TooMuch as error:
        problems.add(error.line, str(error))
    finally:
        loader.dispose()
    return None


def _syntax(error: Any) -> str:
    problem: str = error.problem or "it cannot be read"
    if "\\t" in problem or "character that cannot start any token" in problem:
        problem += " (a tab? indent with spaces)"
    context: str = error.context or ""
    for theirs, ours in _TERMS.items():
        context = context.replace(theirs, ours)
        problem = problem.replace(theirs, ours)
    if context and error.context_mark is not None:
        context += f" that begins in line {error.context_mark.line + 1}"
    return f"it is not valid YAML: {context + ': ' if context else ''}{problem}"


class _TooMuch(FlowError):
    """A bound was reached; reading stops."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Builder:
    """Builds values from events."""

    def __init__(self, loader: Any, problems: Problems) -> None:
        self._next: Any = loader.get_event
        self._problems = problems
        self._values = 0

    def document(self) -> YamlValue | None:
        self._next()  # the stream begins
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            self._problems.add(1, "the file is empty; a flow begins with flow: NAME")
            return None
        document = self._value(self._next(), 0)
        self._next()  # the document ends
        another = self._next()
        if not isinstance(another, yaml.StreamEndEvent):
            self._problems.add(another.start_mark.line + 1, "a second document begins here; a file has one flow")
        return document

    def _value(self, event: Any, depth: int) -> YamlValue:
        line: int = event.start_mark.line + 1
        self._values += 1
        if self._values > MOST_VALUES or depth > DEEPEST:
            raise _TooMuch(f"a flow has at most {MOST_VALUES:,} values, and they nest at most {DEEPEST} deep", line)
        if isinstance(event, yaml.AliasEvent):
            self._problems.add(line, f"aliases such as *{event.anchor} are not supported in flows; write the value out")
            return YamlValue(None, line, is_refused=True)
        if event.anchor is not None:
            self._problems.add(line, f"anchors such as &{event.anchor} are not supported in flows; write the value out")
        if event.tag is not None:
            self._problems.add(line, f"tags such as {quoted(event.tag)} are not supported in flows")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, line)
        if isinstance(event, yaml.SequenceStartEvent):
            sequence = self._sequence(depth)
            return YamlValue(sequence, line, is_refused=sequence.is_refused)
        return YamlValue(self._mapping(line, depth), line)

    def _sequence(self, depth: int) -> YamlSequence:
        sequence = YamlSequence()
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            item = self._value(event, depth + 1)
            sequence.append(item.value)
            sequence.lines.append(item.line)
            sequence.is_refused |= item.is_refused
        return sequence

    def _mapping(self, line: int, depth: int) -> YamlMapping:
        mapping = YamlMapping(line)
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if isinstance(event, yaml.ScalarEvent) and event.value == _MERGE and not event.style:
                self._merge(event, depth)
                mapping.is_partial = True
                continue
            key = self._value(event, depth + 1)
            value = self._value(self._next(), depth + 1)
            if isinstance(key.value, list | dict):
                self._problems.add(key.line, "a key must be a string, not a list or a mapping")
                continue
            if not isinstance(key.value, str):
                self._problems.add(key.line, f"the key {quoted(key.text)} is not a string; write it in quotes")
            if key.text in mapping:
                first = mapping.key_lines[key.text]
                self._problems.add(key.line, f"{quoted(key.text)} occurs twice; it is also in line {first}")
                continue
            mapping[key.text] = value.value
            mapping.key_lines[key.text] = key.line
            mapping.value_lines[key.text] = value.line
            if value.is_refused:
                mapping.refused.add(key.text)
            if not isinstance(value.value, str):
                mapping.written[key.text] = value.text
        return mapping

    def _merge(self, key: Any, depth: int) -> None:
        """Skip the merged value: an alias in it is not reported again."""
        self._problems.add(key.start_mark.line + 1, "merge keys (<<) are not supported in flows; write the values out")
        event = self._next()
        if not isinstance(event, yaml.AliasEvent):
            self._value(event, depth + 1)

    def _scalar(self, event: Any, line: int) -> YamlValue:
        """The value of a scalar. With quotes it is always a string."""
        text: str = event.value
        if event.style or not event.implicit[0]:
            return YamlValue(text, line, text)
        if text in _WORDS:
            return YamlValue(_WORDS[text], line, text)
        if text in _AMBIGUOUS:
            meant = "true" if text.lower() in {"yes", "on"} else "false"
            self._problems.add(
                line, f'{text} is read as {meant} by some readers; write {meant}, or "{text}" for the string'
            )
            return YamlValue(text, line, text, is_refused=True)
        return self._number(text, line) if text[0] in _NUMBER_BEGINS else YamlValue(text, line, text)

    def _number(self, text: str, line: int) -> YamlValue:
        if _INTEGER.fullmatch(text):
            return YamlValue(int(text), line, text)
        if not _NUMBER.fullmatch(text):
            return YamlValue(text, line, text)
        number = math.inf if text[-1].isalpha() else float(text)
        if not math.isfinite(number):
            self._problems.add(line, f"{printable(text)} is not a number in JSON")
            return YamlValue(None, line, text, is_refused=True)
        return YamlValue(number if not text.lstrip("-+").isdigit() else int(text), line, text)
