"""``import holdfast`` is light: a part is loaded when a name of it is first asked for, and all of it at once."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf

LOADED = "import sys, holdfast; {code}; print(*sorted(name for name in sys.modules if name.startswith({prefixes!r})))"


def loaded(code: str, *prefixes: str) -> list[str]:
    script = LOADED.format(code=code, prefixes=prefixes)
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()


def test_every_public_name_is_there() -> None:
    assert all(getattr(hf, name) is not None for name in hf.__all__)
    assert set(hf.__all__) <= set(dir(hf))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = hf.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_importing_loads_neither_engine_nor_command_line() -> None:
    assert loaded("0", "holdfast.", "asyncio", "apsw", "click", "rich", "typing") == ["holdfast._version"]


def test_asking_for_the_decorator_loads_what_workflow_code_calls() -> None:
    names = loaded("holdfast.workflow", "holdfast.authoring", "holdfast.client", "holdfast.cli")
    assert "holdfast.authoring.workflow_api" in names
    assert not [name for name in names if not name.startswith("holdfast.authoring")]


def test_the_engine_loads_no_flows_no_server_no_audit_and_no_command_line() -> None:
    unwanted = ("flows", "core.flow", "core.collation", "storage.postgres", "audit", "testing", "cli.")
    prefixes = [f"holdfast.{part}" for part in unwanted]
    names = loaded("holdfast.Engine, holdfast.activity", *prefixes, "yaml", "cel_expr", "psycopg", "click", "rich")
    assert set(names) <= {"holdfast.core.flow", "holdfast.core.history"}, "events of flows are stored like all others"


OPENS = """
import asyncio
import sys

import holdfast as hf

@hf.activity
async def greet(name: str) -> str:
    return name

@hf.workflow
async def hello(name: str) -> str:
    return await greet(name)

async def main() -> None:
    async with hf.Engine("shop.db", workflows=[hello], activities=[greet]) as engine:
        before = set(sys.modules)
        print(*before)
        await engine.run(hello, "you")
        print(*(set(sys.modules) - before))

asyncio.run(main())
"""
NOT_OPENED = ("flows", "core.collation", "storage.postgres", "audit", "testing", "cli.", "client.views.report")
SLOW_LIBRARIES = {
    *("bz2", "ctypes", "email", "importlib.metadata", "importlib.resources", "lzma", "shutil", "sqlite3", "tempfile"),
    *("cel_expr_python", "click", "psycopg", "pydantic", "rich", "yaml", "zipfile"),
}
"""Libraries that an engine on a file does not need, or needs for a rare call only."""


def test_opening_a_file_and_running_a_workflow_load_no_part_that_they_do_not_need(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(OPENS, encoding="utf-8")
    done = subprocess.run([sys.executable, program], cwd=tmp_path, check=True, capture_output=True, text=True)
    opened, later = (set(line.split()) for line in done.stdout.split("\n")[:2])
    ours = [name for name in opened if name.startswith(tuple(f"holdfast.{part}" for part in NOT_OPENED))]
    assert ours == []
    assert opened & SLOW_LIBRARIES == set()
    assert later == set(), "the first turn imports nothing"


def test_asking_for_the_engine_loads_no_database() -> None:
    assert loaded("holdfast.Engine", "apsw", "psycopg", "holdfast.storage.sqlite", "holdfast.storage.postgres") == []


def test_the_plugin_of_pytest_loads_nothing_until_a_test_uses_it() -> None:
    names = loaded("import holdfast.testing.plugin", "holdfast.", "asyncio", "apsw", "msgspec")
    assert [name for name in names if name.startswith("holdfast")] == [
        "holdfast._version",
        "holdfast.testing",
        "holdfast.testing.plugin",
    ]
