"""The rules of the architecture hold, and each of them fails on a seeded violation."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its rules, to be spoiled."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": str(BIN)},
        capture_output=True,
        text=True,
        check=False,
    )


def ruff(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "ruff", "check", path], cwd=folder, capture_output=True, text=True, check=False)


def spoil(folder: Path, module: str, line: str) -> str:
    path = folder / "src" / "holdfast" / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'"""Spoiled."""\n\n{line}\n', encoding="utf-8")
    return str(path.relative_to(folder))


CORE_MAY_IMPORT = {
    "collections",
    "collections.abc",
    "dataclasses",
    "datetime",  # values only: a linter forbids its clock
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "math",
    "msgspec",
    "msgspec.structs",
    "re",
    "struct",
    "types",
    "typing",
}


def test_the_core_imports_nothing_but_values_and_itself() -> None:
    """The import rules name what is forbidden; this names all that is allowed."""
    strangers: list[str] = []
    for path in sorted((ROOT / "src" / "holdfast" / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            allowed = (*CORE_MAY_IMPORT, "holdfast.errors")
            own = ("holdfast.core", "holdfast.core.")
            strangers += [f"{path.name}: {name}" for name in names if name not in allowed and not name.startswith(own)]
    assert not strangers


def test_the_layers_hold(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", ["socket", "time", "random", "logging", "asyncio", "os", "sqlite3"])
def test_the_core_imports_no_io_clock_or_randomness(copy: Path, module: str) -> None:
    spoil(copy, "core/spoiled.py", f"import {module}")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert f"holdfast.core.spoiled -> {module}" in done.stdout


def test_the_core_imports_nothing_above_it(copy: Path) -> None:
    spoil(copy, "core/spoiled.py", "import holdfast.cli.main")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "holdfast.core is not allowed to import holdfast.cli" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "import time\n\nNOW = time.time()",
        "from time import monotonic",
        "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)",
        "import random",
        "from uuid import uuid4",
        "import secrets",
    ],
)
def test_clock_randomness_and_ids_are_banned_outside_their_module(copy: Path, line: str) -> None:
    done = ruff(copy, spoil(copy, "runtime/spoiled.py", line))
    assert done.returncode == 1
    assert "TID251" in done.stdout
    allowed = ruff(copy, spoil(copy, "runtime/platform.py", line))
    assert "TID251" not in allowed.stdout


@pytest.mark.parametrize("line", ["import pickle\n\npickle.loads(b'')", "VALUE = eval('1')"])
def test_what_runs_code_from_data_is_banned(copy: Path, line: str) -> None:
    done = ruff(copy, spoil(copy, "runtime/spoiled.py", line))
    assert done.returncode == 1
    assert " S3" in f" {done.stdout}"
