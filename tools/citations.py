"""The rules of `docs/rules.md` and the places that cite them.

A citation is a rule number as a word of its own (`L9`), a range (`W1-W6` cites each rule from the first to the last),
or a part of the name of a test (`test_L14_A8_an_answer`).
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES_PAGE = ROOT / "docs" / "rules.md"
INDEX_PAGE = ROOT / "docs" / "reference" / "rules-index.md"
SUFFIXES = (".py", ".sql", ".md")

ENGINE_TESTS = (
    "tests/scenarios",
    "tests/workers",
    "tests/contract",
    "tests/crash",
    "tests/simulation",
    "tests/postgres",
    "src/holdfast/testing/conformance",
)
"""Tests that run the engine or, as the conformance kit, a whole store."""

_DEFINITION = re.compile(r"\*\*([LKAGCWFRM]\d+) (.+?)\.\*\*")
_RULE = re.compile(r"(?<![A-Za-z0-9.`_/#+-])([LKAGCWFRM])([1-9]\d?)(?:-\1?([1-9]\d?))?(?![A-Za-z0-9_]|\.\d)")
_TEST_NAME = re.compile(r"\btest_((?:[LKAGCWFRM]\d+_)+)")


@dataclass(frozen=True, slots=True)
class Citation:
    """One place that names a rule: `test` is the name of the test that has the number in its name."""

    rule: str
    path: str
    line: int
    test: str | None = None


@cache
def rules() -> dict[str, str]:
    """Every rule with its title, in the order of the page."""
    return dict(_DEFINITION.findall(RULES_PAGE.read_text(encoding="utf-8")))


def paths() -> list[Path]:
    """The files of the project that may cite rules."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is on the path
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked source archive has no git
        folders = ("src", "tests", "docs", "tools", "benchmarks", "examples")
        names = [path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*")]
    else:
        names = listed.stdout.splitlines()
    files = [ROOT / name for name in sorted(names)]
    return [path for path in files if path.suffix in SUFFIXES and path.is_file() and path != INDEX_PAGE]


def in_text(text: str) -> Iterator[str]:
    """The rules that one line names."""
    for letter, first, last in _RULE.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number}"


@cache
def citations() -> list[Citation]:
    """Every citation in the source, the tests, the tools and the documents."""
    found: list[Citation] = []
    for path in paths():
        shown = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [Citation(rule, shown, number) for rule in in_text(line)]
            for cited in _TEST_NAME.finditer(line):
                name = re.match(r"\w+", line[cited.start() :])
                test = name.group() if name else None
                found += [Citation(rule, shown, number, test) for rule in cited.group(1).split("_") if rule]
    return found


@cache
def engine_tests() -> dict[str, list[str]]:
    """For each rule the tests that run the engine and have the rule in their names, as `path::name`."""
    found: dict[str, list[str]] = {rule: [] for rule in rules()}
    for path in paths():
        shown = path.relative_to(ROOT).as_posix()
        if path.suffix != ".py" or not shown.startswith(ENGINE_TESTS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (cited := _TEST_NAME.match(node.name)):
                for rule in cited.group(1).split("_"):
                    if rule in found:
                        found[rule].append(f"{shown}::{node.name}")
    return found
