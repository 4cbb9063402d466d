"""The engines that are measured, and an environment for each other engine, made from the package registries.

``python -m benchmarks.peers.environments NAME...`` makes environments under ``build/peers``. An environment is made
again when the versions here change.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "peers"
INSTALL_SECONDS: Final = 600
SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
OWN_STORE: Final = "its own server"


class CannotInstall(Exception):
    """An environment cannot be made; the text is a sentence for the report."""


class Environment(NamedTuple):
    """The packages of one engine, from PyPI and from npm."""

    python: Sequence[str]
    node: Sequence[str] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.python, *self.node)


ENVIRONMENTS: Final = {
    "dbos": Environment(("dbos==3.3.0", "pysqlite3-binary==0.5.4.post2")),
    "absurd": Environment(("absurd-sdk==0.5.1", "absurdctl==0.5.1")),
    "restate": Environment(
        ("restate-sdk==1.2.0", "hypercorn==0.18.0", "aiohttp==3.14.5"), ("@restatedev/restate-server@1.7.12",)
    ),
}


class Contender(NamedTuple):
    """An engine on one store."""

    name: str
    engine: str
    """Its module in `benchmarks.peers.engines`, and its environment."""
    store: str


CONTENDERS: Final = (
    Contender("Holdfast, SQLite", "holdfast", SQLITE),
    Contender("Holdfast, PostgreSQL", "holdfast", POSTGRES),
    Contender("DBOS, SQLite", "dbos", SQLITE),
    Contender("DBOS, PostgreSQL", "dbos", POSTGRES),
    Contender("absurd, PostgreSQL", "absurd", POSTGRES),
    Contender("Restate", "restate", OWN_STORE),
)


def interpreter(engine: str) -> Path:
    """The Python that has the engine."""
    return Path(sys.executable) if engine == "holdfast" else FOLDER / engine / "bin" / "python"


def restate_server() -> Path:
    """The program of Restate's server, for this platform."""
    found = sorted((FOLDER / "restate" / "node_modules" / "@restatedev").glob("restate-server-*/bin/restate-server"))
    if not found:
        raise CannotInstall("npm has no Restate server for this platform")
    return found[0]


def make(engine: str) -> None:
    """Make the environment of an engine, unless it is there; `CannotInstall` if that is not possible."""
    wanted = ENVIRONMENTS[engine]
    folder = FOLDER / engine
    mark = folder / "ready"
    text = "\n".join((*wanted.all, ""))
    if mark.exists() and mark.read_text(encoding="utf-8") == text:
        return
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run([str(interpreter(engine)), "-m", "pip", "install", "--quiet", *wanted.python], folder)
    if wanted.node:
        npm = shutil.which("npm")
        if npm is None:
            raise CannotInstall("npm is not installed")
        _run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *wanted.node], folder)
        restate_server()
    mark.write_text(text, encoding="utf-8")


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - pip and npm
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"{Path(command[0]).name} did not finish within {INSTALL_SECONDS} s") from None
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
        raise CannotInstall(words[-1].strip() if words else f"{Path(command[0]).name} failed")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make(name)
