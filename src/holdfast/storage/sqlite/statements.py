"""The SQL files of this folder by name: ``statements.commit_turn`` is ``sql/commit_turn.sql``."""

from importlib.resources import files
from typing import Any, Final

PACKAGE: Final = "holdfast.storage.sqlite"


class Statements:
    """Reads each file once, when it is first asked for."""

    def __getattr__(self, name: str) -> str:
        source = files(PACKAGE) / "sql" / f"{name}.sql"
        lines = source.read_text(encoding="utf-8").splitlines()
        text = " ".join(line.strip() for line in lines if not line.lstrip().startswith("--"))
        setattr(self, name, text)
        return text


statements: Final[Any] = Statements()


def migrations() -> list[tuple[int, str]]:
    """The schema's history: number and script, oldest first."""
    folder = files(PACKAGE) / "migrations"
    scripts = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return [(int(entry.name[:4]), entry.read_text(encoding="utf-8")) for entry in scripts]
