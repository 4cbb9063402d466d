"""Every public name of `holdfast.core` has a caller in the engine: a function that only tests call proves nothing."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.citations import ROOT

SOURCE = ROOT / "src"
CORE = SOURCE / "holdfast" / "core"

WITHOUT_CALLER = {
    "core.leases.bind": "the deltas of W3, for remote workers",
    "core.leases.unbind": "the deltas of W3, for remote workers",
    "core.pauses.available_after_ms": "for stores without SQL; `restore_attempts.sql` has the same",
    "core.pauses.original_ms": "as `available_after_ms`",
}
"""Names that no code calls yet, with the reason to keep them."""


@dataclass(slots=True)
class Module:
    """Top-level functions and classes of a module with the names that each of them uses."""

    uses: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    elsewhere: set[str] = field(default_factory=set[str])
    """What the rest of the module uses."""


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier():
            yield each.value  # an annotation in quotes


def read(path: Path) -> Module:
    module = Module()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            module.uses.setdefault(node.name, set()).update(name for name in _names(node) if name != node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    module.uses.setdefault(target.id, set()).update(_names(node))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            module.elsewhere.update(_names(node))
    return module


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """The names of core modules that a module of the engine uses, as module and name."""
    tree = ast.parse(path.read_text("utf-8"))
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast.core"):
            for alias in node.names:
                yield node.module, alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def without_caller() -> set[str]:
    """Public functions and classes of core that nothing outside their module reaches, also through their module."""
    used = {
        (module, name)
        for path in (SOURCE / "holdfast").rglob("*.py")
        if "testing" not in path.parts
        for module, name in imported(path)
        if module != dotted(path)
    }
    found: set[str] = set()
    for path in CORE.rglob("*.py"):
        module = read(path)
        reached = {name for owner, name in used if owner == dotted(path)} | module.elsewhere
        todo = list(reached)
        while todo:
            for name in module.uses.get(todo.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    todo.append(name)
        found |= {
            f"{dotted(path).removeprefix('holdfast.')}.{name}"
            for name in module.uses
            if not name.startswith("_") and name not in reached
        }
    return found


def test_every_public_name_of_core_has_a_caller() -> None:
    assert without_caller() == WITHOUT_CALLER.keys()


def test_a_name_without_a_caller_is_found(tmp_path: Path) -> None:
    path = tmp_path / "part.py"
    path.write_text("def used():\n    return helper()\n\ndef helper(): ...\n\ndef unused(): ...\n", encoding="utf-8")
    module = read(path)
    assert module.uses == {"used": {"helper"}, "helper": set(), "unused": set()}
