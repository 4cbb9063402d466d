"""Problems of a flow: collected, so that one error has all of them, each with its line and a suggestion."""

from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice
from typing import Final, TypeAlias

from holdfast.errors import FlowError, FlowProblem

MOST_PROBLEMS: Final = 100
"""Of one kind, errors or warnings, so that a crafted file cannot make the message long."""
MOST_SUGGESTIONS: Final = 40
"""Of one flow."""
MOST_NAMES_SCANNED: Final = 2_000
"""For one suggestion, by the cheap comparison that counts characters."""
MOST_NAMES_COMPARED: Final = 10
"""The best of them, by the exact comparison, whose time grows with the cube of the length."""
LONGEST_COMPARED: Final = 64
LEAST_SIMILAR: Final = 0.6
SHOWN_CHARACTERS: Final = 60
LONGEST_NODE: Final = 100
"""Up to this length the id of an activity is not shortened."""

Places: TypeAlias = dict[tuple[str, str], int]
"""The line of each node (with an empty string), and of each expression or argument of it, such as ``input.speed``."""


class Problems:
    """The problems that were found so far."""

    def __init__(self) -> None:
        self._errors: list[FlowProblem] = []
        self._warnings: list[FlowProblem] = []
        self._suggestions = 0
        self._spoiled: set[tuple[str, str]] = set()
        self.left_out = 0
        """Errors beyond `MOST_PROBLEMS`."""

    def add(self, line: int, message: str, *, node: str = "", suggestion: str = "") -> None:
        """Add an error. The message begins with the node, if it is about one."""
        self._add(FlowProblem(line, _about(node, message), suggestion, "error", node))

    def warn(self, line: int, message: str, *, node: str = "", suggestion: str = "") -> None:
        """Add a warning."""
        self._add(FlowProblem(line, _about(node, message), suggestion, "warning", node))

    def spoil(self, node: str, where: str) -> None:
        """Mark a place that could not be read, so that consequences of its absence are not reported."""
        self._spoiled.add((node, where))

    def is_spoiled(self, node: str, where: str) -> bool:
        """Whether the place, or one that contains it, could not be read."""
        if not self._spoiled:
            return False
        words = where.split(".")
        return any((node, ".".join(words[:count])) in self._spoiled for count in range(1, len(words) + 1))

    def _add(self, problem: FlowProblem) -> None:
        found = self._errors if problem.severity == "error" else self._warnings
        if len(found) < MOST_PROBLEMS:
            found.append(problem)
        elif found is self._errors:
            self.left_out += 1

    def closest(self, word: str, known: Collection[str]) -> str:
        """The name in `known` that is most similar to `word`, or an empty string."""
        self._suggestions += 1
        if self._suggestions > MOST_SUGGESTIONS:
            return ""
        return _closest(word, known)

    def all(self) -> tuple[FlowProblem, ...]:
        """All problems in the order of their lines. Warnings have the room that errors leave."""
        shown_problems = [*self._errors, *self._warnings][:MOST_PROBLEMS]
        return tuple(sorted(shown_problems, key=lambda problem: problem.line))

    @property
    def has_errors(self) -> bool:
        return bool(self._errors)

    def error(self, source: str) -> FlowError:
        """One error with all problems."""
        return FlowError("\n".join(self.lines(source)), self.all(), self.left_out)

    def lines(self, source: str) -> Iterable[str]:
        """A line for each problem, in the form of compilers."""
        for problem in self.all():
            yield shown(problem, source)
        if self.left_out:
            yield f"{source}: and {self.left_out:,} more"


def _closest(word: str, known: Collection[str]) -> str:
    if len(word) > LONGEST_COMPARED:
        return ""
    difference = 3 + len(word) // 3
    names = (name for name in sorted(known) if abs(len(name) - len(word)) <= difference)
    matcher = SequenceMatcher(b=word)
    promising: list[tuple[float, str]] = []
    for name in islice((name for name in names if len(name) <= LONGEST_COMPARED), MOST_NAMES_SCANNED):
        matcher.set_seq1(name)
        if matcher.real_quick_ratio() >= LEAST_SIMILAR and (most := matcher.quick_ratio()) >= LEAST_SIMILAR:
            promising.append((most, name))
    best = LEAST_SIMILAR
    similar = ""
    for most, name in nlargest(MOST_NAMES_COMPARED, promising):
        if most < best:
            break
        matcher.set_seq1(name)
        if (ratio := matcher.ratio()) > best or (ratio == best and not similar):
            best = ratio
            similar = name
    return similar


def shown(problem: FlowProblem, source: str) -> str:
    """A problem with its place: ``flow.yaml:7: pack: there is no activity "strat" (did you mean start?)``."""
    place = f"{source}:{problem.line}" if problem.line else source
    kind = "warning: " if problem.severity == "warning" else ""
    return f"{place}: {kind}{problem}"


def quoted(text: str) -> str:
    """A string of the user inside a message, shortened and on one line."""
    return f'"{printable(text)}"'


def printable(text: str) -> str:
    """A string inside a message, without quotes."""
    beginning = text[: SHOWN_CHARACTERS + 1]
    one_line = beginning if beginning.isprintable() else ascii(beginning)[1:-1]
    return f"{one_line[:SHOWN_CHARACTERS]}..." if len(one_line) > SHOWN_CHARACTERS else one_line


def _about(node: str, message: str) -> str:
    return (
        f"{node if node.isidentifier() and len(node) <= LONGEST_NODE else printable(node)}: {message}"
        if node
        else message
    )
