"""The page "Take part from any language": a reader who runs its blocks in order sees what the page prints.

The second word of a fence names the store of a block; a block without one runs on both. `# prints:` lines are the
expected standard output.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.forking.processes import program
from tests.postgres.programs import programs

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "guide" / "any-language.md").read_text("utf-8")
BLOCKS: Final = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
STUDIO: Final = "studio"
ROLES: Final = ("shop", "renderer", "holdfast_starter", "holdfast_executor")
STORES: Final = ("sqlite", "postgresql")
POLL_SECONDS: Final = 0.05
START_POLLS: Final = 1_200
LIMIT_SECONDS: Final = 60.0
EXEC_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")


def blocks(language: str, *words: str) -> list[str]:
    """The blocks of a language that have one of the words, in the order of the page."""
    return [text for found, word, text in BLOCKS if found == language and word in words]


def script_for(store: str, *, with_node: bool) -> str:
    """The commands of the page for one store; SQL is given to psql, and a program in JavaScript is a file."""
    words = {"", store, *(["node"] if with_node else [])}
    parts: list[str] = []
    for language, word, text in BLOCKS:
        if word not in words:
            continue
        if language == "sh":
            parts.append(text)
        elif language == "sql":
            parts.append(f"psql -q -v ON_ERROR_STOP=1 {STUDIO} > sql.out <<'END_OF_SQL'\n{text}END_OF_SQL\n")
    return "set -euo pipefail\n" + "\n".join(parts)


def expected_of(script: str) -> list[str]:
    return re.findall(r"^# prints: (.*)$", script, re.MULTILINE)


@pytest.fixture
def environment(store: str, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The variables of a reader: the commands on the path, and for PostgreSQL a server with an empty database."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    variables |= {"PATH": path, "PYTHONUNBUFFERED": "1"}
    if store == "sqlite":
        if shutil.which("sqlite3") is None:
            pytest.skip("the sqlite3 command is not installed")
        yield {**variables, "HOLDFAST_STORE": "studio.db"}
        return
    with psycopg.connect(request.getfixturevalue("postgres_server"), autocommit=True) as connection:
        info = connection.info
        connection.execute(f"CREATE DATABASE {STUDIO}".encode())
        variables |= {"PGHOST": info.host, "PGPORT": str(info.port), "PGUSER": info.user}
        variables["PATH"] = f"{programs()}{os.pathsep}{path}"
        try:
            yield {**variables, "HOLDFAST_STORE": f"postgresql:///{STUDIO}"}
        finally:
            connection.execute(f"DROP DATABASE {STUDIO} WITH (FORCE)".encode())
            for role in ROLES:
                connection.execute(f"DROP ROLE IF EXISTS {role}".encode())


@contextmanager
def worker(folder: Path, environment: dict[str, str]) -> Generator[None]:
    """The worker that the page keeps running."""
    [program_text] = blocks("python", "")
    (folder / "studio.py").write_text(program_text, encoding="utf-8")
    [command] = blocks("sh", "worker")
    log = folder / "worker.log"
    with program(["sh", "-c", f"exec {command.strip()} > {log.name} 2>&1"], cwd=folder, env=environment) as process:
        for _ in range(START_POLLS):
            assert process.poll() is None, log.read_text("utf-8")
            if log.exists() and b"serves" in log.read_bytes():
                break
            time.sleep(POLL_SECONDS)
        else:
            pytest.fail("the worker does not start")
        yield
        process.terminate()
        process.wait(timeout=LIMIT_SECONDS)


def run(script: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """The lines that a script prints, with ids of attempts replaced."""
    (folder / "page.sh").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["bash", "page.sh"],  # noqa: S607 - the page is for a shell
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [EXEC_ID.sub("EXEC-ID", line.rstrip()) for line in done.stdout.splitlines()]


def write_programs(store: str, folder: Path) -> None:
    for text in blocks("js", "", store):
        name = text.partition("\n")[0].removeprefix("// ")
        (folder / name).write_text(text, encoding="utf-8")


def install_driver(folder: Path) -> None:
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "pg"],  # noqa: S607 - npm is on the path
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install pg: {done.stderr[-200:]}")


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_the_commands_and_statements_print_what_the_page_shows(
    store: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    script = script_for(store, with_node=False)
    with worker(tmp_path, environment):
        assert run(script, tmp_path, environment) == expected_of(script)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_the_program_in_javascript_runs_activities(store: str, tmp_path: Path, environment: dict[str, str]) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    write_programs(store, tmp_path)
    if store == "postgresql":
        install_driver(tmp_path)
    definitions = [text for text in blocks("sh", store) if text.startswith("sql()")]
    script = "\n".join(["set -euo pipefail", *definitions, *blocks("sh", "node")])
    with worker(tmp_path, environment):
        assert run(script, tmp_path, environment) == expected_of(script)


def test_every_block_is_run_by_a_test() -> None:
    known = {"python", "sh", "sql", "js"}
    unknown = [(language, word) for language, word, _ in BLOCKS if language not in known]
    assert not unknown
    assert {word for _, word, _ in BLOCKS} == {"", "worker", "node", *STORES}
    assert len(expected_of(script_for("postgresql", with_node=True))) > 30


def test_the_refusals_of_the_page_are_those_of_the_engine() -> None:
    """Each quoted refusal is a text of the sources, up to its variable parts."""
    rows = re.findall(r"^\| `(.+?)` \| ", PAGE.partition("| refusal | cause")[2].partition("\n\n")[0], re.MULTILINE)
    assert len(rows) > 5
    folder = ROOT / "src" / "holdfast"
    sources = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    for refusal in rows:
        words = re.sub(r"^\.\.\. | ?\.\.\.$", "", refusal)
        parts = re.split(r"RUNNING|COMPLETED|READY|render\(\)", words)
        assert all(part.strip(" :,") in sources for part in parts), refusal
