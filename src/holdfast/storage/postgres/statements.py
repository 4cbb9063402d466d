"""The statements and migrations of the PostgreSQL store, for one schema of a database.

Every table is named with its schema when a statement is loaded, so that no connection needs a search path. The shared
statements are written for SQLite; four things differ in all of them in the same way, and are translated here.
"""

import re
from functools import lru_cache
from typing import Final

from holdfast.storage.relational import migrations as history
from holdfast.storage.relational import statements as shared
from holdfast.storage.relational.migrations import Migration

PACKAGE: Final = "holdfast.storage.postgres"
TABLES: Final = (
    *(
        "instances",
        "flows",
        "closings",
        "history",
        "inbox",
        "received",
        "timers",
        "attempts",
        "payloads",
        "kept",
        "updates",
    ),
    *("questions", "workers", "commits", "clock", "migrations"),
)

_PLACEHOLDER: Final = re.compile(r"\?(\d*)")
_SAME: Final = re.compile(r"\bIS \$")
_HINT: Final = re.compile(r"(?<=[ (])\+(?=[a-z])")
_EACH: Final = re.compile(r"json_each\(([^()]*)\)(?! AS \w+\()")
_EACH_NAMED: Final = re.compile(r"json_each\(([^()]*)\)(?= AS \w+\()")
_TABLE: Final = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")


@lru_cache
def statements_of(schema: str) -> shared.Statements:
    """The statements on the tables of a schema."""
    return shared.Statements(PACKAGE, lambda text: translate(text, schema))


def translate(text: str, schema: str) -> str:
    """A statement in PostgreSQL's words: `?` is `$1`, a list in JSON is unfolded, hints to SQLite's planner go."""
    counted = iter(range(1, text.count("?") + 1))
    text = _PLACEHOLDER.sub(lambda found: f"${found[1] or next(counted)}", text)
    text = _SAME.sub("IS NOT DISTINCT FROM $", text)
    text = _HINT.sub("", text)
    text = _EACH.sub(r"jsonb_array_elements_text((\1)::jsonb) AS json_each(value)", text)
    text = _EACH_NAMED.sub(r"jsonb_array_elements_text((\1)::jsonb)", text)
    text = text.replace("nextval('", f'nextval(\'"{schema}".')
    return _TABLE.sub(rf'\1 "{schema}".\2', text)


def migrations() -> tuple[Migration, ...]:
    """The schema's history, oldest first."""
    return history.migrations(PACKAGE)
