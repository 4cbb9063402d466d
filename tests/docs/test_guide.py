"""Every Python snippet of the guide runs."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    (page.name, number, code)
    for page in [ROOT / "README.md", ROOT / "docs" / "scale.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


@pytest.mark.parametrize(("page", "number", "code"), SNIPPETS, ids=[f"{page}-{number}" for page, number, _ in SNIPPETS])
def test_a_snippet_starts_nothing_when_it_is_imported(page: str, number: int, code: str) -> None:
    """`holdfast run`, `holdfast worker` and processes of activities import programs that are copied from the guide."""
    for statement in ast.parse(code).body:
        if not isinstance(statement, ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            assert "asyncio.run(" not in ast.unparse(statement), (
                f"{page}, snippet {number}: guard {ast.unparse(statement)}"
            )


SHOP = "shop"
"""The database of the page on PostgreSQL, on the server that libpq finds by its variables."""


@pytest.fixture
def environment(page: str, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The variables of a snippet; for the page on PostgreSQL they name a server with an empty database."""
    if page != "postgresql.md":
        yield dict(os.environ)
        return
    with psycopg.connect(request.getfixturevalue("postgres_server"), autocommit=True) as connection:
        info = connection.info
        connection.execute(f"CREATE DATABASE {SHOP}".encode())
        try:
            yield {**os.environ, "PGHOST": info.host, "PGPORT": str(info.port), "PGUSER": info.user}
        finally:
            connection.execute(f"DROP DATABASE {SHOP} WITH (FORCE)".encode())


@pytest.mark.slow
@pytest.mark.parametrize(("page", "number", "code"), SNIPPETS, ids=[f"{page}-{number}" for page, number, _ in SNIPPETS])
def test_a_snippet_runs(page: str, number: int, code: str, tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "snippet.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{page}, snippet {number}:\n{done.stderr}"
