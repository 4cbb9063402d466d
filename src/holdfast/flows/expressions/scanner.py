"""Reads from the text of an expression which variables, functions and loops it uses, and estimates its work.

The library has parsed the text before, so its brackets match and its tokens are those of CEL. The library does not
report the variables of a program. They are needed to find wrong names when a flow is loaded, and to hand over only the
values that are read.

Work is bounded before an evaluation begins, because nothing can stop it. The library ends after 10,000 rounds of loops
in all, but a round can join long strings, and the lists that `map` and `filter` build are copied for each item. So the
work is estimated from the text and from the size of the values that it reads, rather too high than too low, and
compared with one bound.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

import msgspec

from holdfast.errors import ExpressionError
from holdfast.payloads.limits import has_nul

MOST_NESTED_MACROS: Final = 3
"""Loops inside loops. The library stops after 10,000 rounds in all, which a fourth level would soon reach."""

TYPES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
KEYWORDS: Final = frozenset({"false", "in", "null", "true"})
RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
"""Reserved words of CEL, which cannot be the name of a variable."""
MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
BUILDING_MACROS: Final = frozenset({"filter", "map"})
FUNCTIONS: Final = frozenset(
    {
        "bool",
        "bytes",
        "double",
        "duration",
        "dyn",
        "has",
        "int",
        "matches",
        "size",
        "string",
        "timestamp",
        "type",
        "uint",
    }
)
METHODS: Final = frozenset(
    {"contains", "endsWith", "matches", "size", "startsWith", "getDate", "getDayOfMonth", "getDayOfWeek"}
    | {"getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds"}
)

_OTHER_FUNCTIONS: Final = {"len": ["size"], "str": ["string"], "float": ["double"], "any": ["exists"]}
"""Functions of Python, and those of CEL for the same."""
_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
    |(?P<text>[bB]?[rR](?:'''[\s\S]*?'''|\"\"\"[\s\S]*?\"\"\"|'[^'\n]*'|"[^"\n]*")
      |[bB]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    |(?P<number>0x[0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]*`)
    |(?P<sign>&&|\|\||[<>=!]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")


class Token(NamedTuple):
    """A token of the text and its position."""

    kind: str
    text: str
    start: int


Paths = dict[str, "Paths | None"]
"""The fields that are read of each variable, and of these fields; None for all of it."""


@dataclass(slots=True)
class ExpressionUses:
    """The variables, macros and additions of one expression."""

    paths: Paths = field(default_factory=dict[str, "Paths | None"])
    macros: int = 0
    nested: int = 0
    builds_lists: bool = False
    matches: bool = False
    """It calls `matches`."""
    additions: int = 0
    outer_additions: int = 0
    """Additions outside of macros: they can lengthen a list before a macro goes over it."""
    tokens: int = 0


@dataclass(slots=True)
class _Bracket:
    """An open bracket; that of a macro has the name of its variable."""

    is_macro: bool = False
    variable: str = ""


def scan_expression(text: str) -> ExpressionUses:
    """The uses of `text`. An unknown function is an `ExpressionError`."""
    tokens = [
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]
    uses = ExpressionUses(tokens=len(tokens))
    open_brackets: list[_Bracket] = []
    before = ""
    for place, (kind, word, _) in enumerate(tokens):
        if kind == "name":
            if place + 1 < len(tokens) and tokens[place + 1].text == "(":
                _check_function(tokens[place], is_method=before == ".")
                uses.matches |= word == "matches"
            elif before != ".":
                _add_variable(uses, tokens, place, open_brackets)
        elif kind == "sign":
            if word in _OPENING:
                open_brackets.append(_opened(uses, tokens, place, open_brackets))
            elif word in _CLOSING:
                open_brackets.pop()
            elif word == "+":
                uses.additions += 1
                uses.outer_additions += not any(bracket.is_macro for bracket in open_brackets)
        before = word
    return uses


def _opened(uses: ExpressionUses, tokens: list[Token], place: int, open_brackets: list[_Bracket]) -> _Bracket:
    """The bracket at `place`. Macros are counted."""
    is_call = tokens[place].text == "(" and place > 1 and tokens[place - 2].text == "."
    if not is_call or tokens[place - 1].text not in MACROS:
        return _Bracket()
    uses.macros += 1
    uses.nested = max(uses.nested, 1 + sum(bracket.is_macro for bracket in open_brackets))
    uses.builds_lists |= tokens[place - 1].text in BUILDING_MACROS
    if uses.nested > MOST_NESTED_MACROS:
        raise ExpressionError(
            f"more than {MOST_NESTED_MACROS} macros inside each other", column=tokens[place - 1].start + 1
        )
    return _Bracket(is_macro=True, variable=tokens[place + 1].text)


def _check_function(token: Token, *, is_method: bool) -> None:
    known = METHODS | MACROS if is_method else FUNCTIONS
    if token.text in known:
        return
    similar = _OTHER_FUNCTIONS.get(token.text) or get_close_matches(token.text, known, n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    what = "method" if is_method else "function"
    raise ExpressionError(f"there is no {what} {token.text}(){hint}", column=token.start + 1)


def _add_variable(uses: ExpressionUses, tokens: list[Token], place: int, open_brackets: list[_Bracket]) -> None:
    """Add a name that is a variable of the flow: not one of a macro around it, and not a word of CEL."""
    name = tokens[place].text
    if name in KEYWORDS or name in TYPES or any(bracket.variable == name for bracket in open_brackets):
        return
    path = [name]
    place += 1
    while _is_selection(tokens, place):
        path.append(tokens[place + 1].text.strip("`"))
        place += 2
    add_path(uses.paths, path)


def _is_selection(tokens: list[Token], place: int) -> bool:
    """Whether a field is selected there, not a method called."""
    return (
        place + 1 < len(tokens)
        and tokens[place].text == "."
        and tokens[place + 1].kind == "name"
        and not (place + 2 < len(tokens) and tokens[place + 2].text == "(")
    )


def add_path(paths: Paths, path: list[str]) -> None:
    """Add `path` to the paths that are read. A value contains its parts."""
    for name in path[:-1]:
        inner = paths.setdefault(name, {})
        if inner is None:
            return
        paths = inner
    paths[path[-1]] = None


MOST_ROUNDS: Final = 10_000
"""The library's own bound."""
MOST_WORK: Final = 2_000_000_000
"""The estimated cost of one evaluation, in bytes read. The slowest evaluation found within it takes about a second."""
COST_OF_BUILDING: Final = 220
"""`map` and `filter` copy their list for each item: 3,000 items take a third of a second."""
COST_OF_MATCHING: Final = 120
"""A pattern can need thousands of steps for each byte: it reads 4,000 bytes at most."""


def check_work(text: str, uses: ExpressionUses, read: Mapping[str, Any]) -> None:
    """Refuse an evaluation that could take very long, or that the library would get wrong."""
    size = len(_encoded(text, read)) + len(text)
    if uses.matches and COST_OF_MATCHING * size**2 > MOST_WORK:
        most = math.isqrt(MOST_WORK // COST_OF_MATCHING)
        raise ExpressionError(
            f"{text}: an expression with matches reads at most {most:,} bytes, and this reads {size:,}; "
            "do it in an activity"
        )
    if uses.macros or uses.additions:
        stages = uses.macros + 1
        growth = (1 + uses.additions / stages) ** stages
        longest = max(longest_in(read), uses.tokens) if uses.macros else 0
        length = longest * (growth if uses.macros > 1 else 1 + uses.outer_additions)
        rounds = min(MOST_ROUNDS, length**uses.nested)
        if uses.builds_lists and COST_OF_BUILDING * length**2 > MOST_WORK:
            most = math.isqrt(MOST_WORK // COST_OF_BUILDING)
            raise ExpressionError(
                f"{text}: map and filter go over at most {most:,} items, and these may be {length:,.0f}; "
                "do it in an activity, or use each"
            )
        work = size * growth * uses.tokens * rounds
        if work > MOST_WORK:
            lists = f", and goes over lists of up to {length:,.0f} items" if length else ""
            raise ExpressionError(
                f"{text}: this is too much work for an expression: it reads {size:,} bytes{lists}, which is estimated "
                f"at {work:,.0f} bytes in all; the limit is {MOST_WORK:,}; "
                f"do it in an activity{', or use each' if length else ''}"
            )


def _encoded(text: str, read: Mapping[str, Any]) -> bytes:
    """The values that are read, as JSON. The library cuts strings off at the character U+0000, so that is refused."""
    try:
        encoded = msgspec.json.encode(read)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ExpressionError(f"{text}: what it reads is not valid JSON: {error}") from None
    if has_nul(encoded):
        raise ExpressionError(f"{text}: it reads a string with the character U+0000, which is not supported")
    return encoded


def longest_in(value: Any) -> int:
    """The length of the longest list or mapping in `value`."""
    longest = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(cast("dict[str, Any]", one).values())
        elif isinstance(one, list):
            waiting.extend(cast("list[Any]", one))  # type: ignore[redundant-cast]  # pyright sees a list of unknowns
        else:
            continue
        longest = max(longest, len(one))  # pyright: ignore[reportUnknownArgumentType]  # of anything
    return longest
