"""``import holdfast`` is light: a part is loaded when a name of it is first asked for, and all of it at once."""

import subprocess
import sys

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


def test_the_plugin_of_pytest_loads_nothing_until_a_test_uses_it() -> None:
    names = loaded("import holdfast.testing.plugin", "holdfast.", "asyncio", "apsw", "msgspec")
    assert [name for name in names if name.startswith("holdfast")] == [
        "holdfast._version",
        "holdfast.testing",
        "holdfast.testing.plugin",
    ]
