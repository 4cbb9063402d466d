"""Structure of the source code: modules, class names, assignments, imports, docstrings and words.

Two rules do not hold everywhere yet. Their tables have the number of places that each top-level folder may still have:
a number may only get smaller, and a folder without an entry has none. An empty table enforces the rule.
"""

import ast
import inspect
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools.citations import ROOT

import holdfast
from holdfast import errors, testing

PACKAGE = ROOT / "src" / "holdfast"
LEAST_LINES = 40

SMALL_MODULES = {
    "holdfast.__main__": "`python -m holdfast`",
    "holdfast.testing.plugin": "an entry point of pytest, which must import nothing else",
    "holdfast.storage.relational.apply.queries": "a feature has the same file name in every folder",
}
"""Modules below `LEAST_LINES` lines with at most one importer, with the reason to keep them."""

PUBLIC_SURFACES = {"holdfast", "holdfast.testing"}
"""Packages that users import names from. Every other name is imported from the module that defines it."""

PACKED_ASSIGNMENTS: Mapping[str, int] = {
    "authoring": 4,
    "cli": 1,
    "core": 5,
    "flows": 7,
    "payloads": 1,
    "runtime": 26,
    "storage": 1,
    "testing": 12,
}
"""How many statements of each folder may still assign several values to several names: `a, b = 1, 2`."""

DIALECT = re.compile(r"\b(nobody|somebody|whoever|anew|told|said)\b", re.IGNORECASE)
"""Words that stand where the name of a thing belongs: a worker, a client, a caller, another process."""
DIALECT_WORDS: Mapping[str, int] = {"runtime": 2}
"""How often comments, docstrings and messages of each folder may still have one of these words."""


@cache
def sources(suffix: str = ".py") -> Mapping[str, str]:
    """The files of the package by their dotted names."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob(f"*{suffix}")):
        found[_dotted(path)] = path.read_text("utf-8")
    return found


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> Mapping[str, list[ast.AST]]:
    """All nodes of the syntax tree of each module."""
    return {name: list(ast.walk(ast.parse(text))) for name, text in sources().items()}


def folder_of(module: str) -> str:
    """The top-level folder of a module; of a module beside the folders, its own name."""
    return module.split(".")[1] if "." in module else module


def imports() -> Iterator[tuple[str, str, str]]:
    """Every import of one of our modules: who imports, the module, and the name (empty for a whole module)."""
    for importer, nodes in modules().items():
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from ((importer, alias.name, "") for alias in node.names if alias.name in modules())
            elif isinstance(node, ast.ImportFrom) and (module := node.module or "") in modules():
                for alias in node.names:
                    whole = f"{module}.{alias.name}"
                    yield (importer, whole, "") if whole in modules() else (importer, module, alias.name)


def test_a_small_module_has_several_importers() -> None:
    """A module below 40 lines that one other module imports belongs into that one."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for importer, module, _ in imports():
        importers[module].add(importer)
    small = {
        name
        for name, text in sources().items()
        if len(text.splitlines()) < LEAST_LINES and len(importers[name]) <= 1 and not _is_package(name)
    }
    assert small <= SMALL_MODULES.keys()


def _is_package(name: str) -> bool:
    return (PACKAGE.parent / name.replace(".", "/") / "__init__.py").is_file()


def test_no_class_name_is_defined_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, nodes in modules().items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert not {name: modules for name, modules in places.items() if len(modules) > 1}


def test_a_name_is_imported_from_the_module_that_defines_it() -> None:
    found = [
        f"{importer}: {name} is not defined in {module}"
        for importer, module, name in imports()
        if name and module not in PUBLIC_SURFACES and name not in _defined_in(module)
    ]
    assert not found


@cache
def _defined_in(module: str) -> frozenset[str]:
    names: set[str] = set()
    for node in modules()[module]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


# ---------------------------------------------------------------- one assignment for each line


def packed(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """The lines of assignments of several values to several names. A swap needs its tuple."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            values = sorted(map(ast.unparse, node.value.elts))
            for target in node.targets:
                if isinstance(target, ast.Tuple) and sorted(map(ast.unparse, target.elts)) != values:
                    yield node.lineno
                    break


def test_one_assignment_for_each_line() -> None:
    counted = Counter(folder_of(module) for module, tree in modules().items() for _ in packed(tree))
    assert not _above(counted, PACKED_ASSIGNMENTS), "write one assignment on each line"


@pytest.mark.parametrize(
    ("line", "count"),
    [("a, b = 1, 2", 1), ("a = b, c = 1, 2", 1), ("a, b = f()", 0), ("a, b = b, a", 0), ("a = 1, 2", 0)],
)
def test_a_packed_assignment_is_found(line: str, count: int) -> None:
    assert len(list(packed(ast.walk(ast.parse(line))))) == count


def _above(counted: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, str]:
    return {
        folder: f"{count}, at most {allowed.get(folder, 0)}"
        for folder, count in counted.items()
        if count > allowed.get(folder, 0)
    }


# ---------------------------------------------------------------- words


def prose(text: str) -> Iterator[str]:
    """The comments, docstrings and messages of a module; nothing of a module without a word of the dialect."""
    if not DIALECT.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def dialect_words() -> Counter[str]:
    """How often the prose of each folder has a word of the dialect."""
    counted: Counter[str] = Counter()
    for module, text in sources().items():
        counted[folder_of(module)] += _dialect_in(prose(text))
    for statement, text in sources(".sql").items():
        counted[folder_of(statement)] += _dialect_in([text])
    return counted


def _dialect_in(texts: Iterable[str]) -> int:
    return sum(len(DIALECT.findall(text)) for text in texts)


def test_prose_names_things_instead_of_nobody_and_whoever() -> None:
    assert not _above(dialect_words(), DIALECT_WORDS), "name the worker, client, caller or process that is meant"


def test_a_word_of_the_dialect_is_found() -> None:
    text = 'told = 1  # nobody\ndef f():\n    """Whoever asks."""\n    return f"was told {told}"\n'
    assert _dialect_in(prose(text)) == 3


# ---------------------------------------------------------------- docstrings


def without_docstring(module: ModuleType, names: Iterable[str]) -> Iterator[str]:
    """Public classes, functions and methods without a docstring."""
    for name in names:
        found: Any = getattr(module, name)
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            continue
        if not found.__doc__:
            yield name
        if inspect.isclass(found):
            for member, value in vars(found).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(function) and not member.startswith("_") and not function.__doc__:
                    yield f"{name}.{member}"


def test_every_public_name_has_a_docstring() -> None:
    of_errors = [name for name, found in vars(errors).items() if getattr(found, "__module__", "") == errors.__name__]
    found = {
        *without_docstring(holdfast, holdfast.__all__),
        *without_docstring(testing, testing.__all__),
        *without_docstring(errors, of_errors),
    }
    assert found == set()
