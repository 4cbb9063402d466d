"""The class of mutants, and names of tests that catch several of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
STORAGE: Final = "src/holdfast/storage"
KIT: Final = "tests/conformance/test_sqlite.py"
LEASES: Final = "tests/scenarios/test_leases.py"
LIMITS: Final = "tests/scenarios/test_activity_limits.py"
TROUBLE: Final = "tests/scenarios/test_store_trouble.py"
TIMERS: Final = "tests/scenarios/test_timers.py"
ACTIVITIES: Final = "tests/scenarios/test_activities.py"
ENGINE: Final = "tests/scenarios/test_engine.py"
EVENT_LOOPS: Final = "tests/scenarios/test_event_loops.py"
CLOSING: Final = "tests/scenarios/test_closing.py"
POWER: Final = "tests/crash/test_power_loss.py::test_G11_what_was_acknowledged_survives_every_power_cut"
CODE: Final = "tests/scenarios/test_code_against_history.py"
ENDINGS: Final = "tests/scenarios/test_endings.py"
REPLAY_SAFE: Final = "tests/scenarios/test_replay_safe.py"
ASYNCIO: Final = "tests/scenarios/test_asyncio.py"
LOOP: Final = "tests/unit/replay/loop/test_event_loop.py"
LIVE: Final = "tests/unit/runtime/turns/test_live_instance.py"
BEFORE_COMMIT: Final = "tests/scenarios/test_before_commit.py"
COMMITTER: Final = "tests/unit/runtime/test_committer_outcomes.py"
LOST_REPLIES: Final = "tests/scenarios/test_lost_replies.py"
HOST: Final = "tests/unit/runtime/test_host_identity.py"
TERMINATE: Final = "tests/scenarios/test_terminate.py"
POLICIES: Final = "tests/scenarios/test_policies.py"
LARGE_INPUTS: Final = "tests/scenarios/test_large_inputs.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: in `file`, `old` becomes `new`. One of `tests` has to fail then."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def in_sql(name: str, rule: str, statement: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant in a statement of the SQLite store, or in one that both stores share."""
    own, shared = (f"{STORAGE}/{folder}/sql/{statement}.sql" for folder in ("sqlite", "relational"))
    return Mutant(name, rule, own if (ROOT / own).is_file() else shared, old, new, tests or (KIT,))


def in_python(name: str, rule: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant in a module of the package."""
    return Mutant(name, rule, f"src/holdfast/{module}.py", old, new, tests or (KIT,))
