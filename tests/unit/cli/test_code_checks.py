"""``holdfast replay``, ``patches`` and ``blocked``: what they print, their exit codes, and that they change nothing."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.scenarios.support import rows, until
from tests.unit.cli.commands import Command

import holdfast as hf
from holdfast.errors import HistoryMismatch

ORIGINAL = """
import holdfast as hf


@hf.activity
async def charge(cents: int) -> str:
    return "receipt"


@hf.activity
async def check_stock() -> bool:
    return True


@hf.workflow
async def checkout(cents: int) -> str:
    receipt = await charge(cents)
    await hf.event("go")
    return receipt


@hf.workflow
async def elsewhere() -> None:
    await hf.event("go")


@hf.workflow(on_error="block")
async def buggy(order: str) -> str:
    raise KeyError(order)
"""
PLAIN = ORIGINAL.replace("    receipt = ", "    await check_stock()\n    receipt = ")
PATCHED = PLAIN.replace("    await check_stock()", "    if hf.patched('stock'):\n        await check_stock()")
OTHER_TYPE = ORIGINAL.replace("checkout(cents: int)", "checkout(cents: bool)")
OTHER_STEP_TYPE = ORIGINAL.replace("charge(cents: int)", "charge(cents: int, currency: str)")


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("filler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["filler"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def filled(holdfast: Command) -> Command:
    """Two open instances of the former code, one of another workflow, two blocked ones, and one that is closed."""
    folder = holdfast.folder
    for name, text in (("former", ORIGINAL), ("plain", PLAIN), ("patched", PATCHED), ("typed", OTHER_TYPE)):
        folder.joinpath(f"{name}.py").write_text(text, encoding="utf-8")
    folder.joinpath("alone.py").write_text(ORIGINAL.partition("@hf.workflow\nasync def elsewhere")[0], encoding="utf-8")
    code = module_of(folder / "former.py")
    store = folder / "holdfast.db"

    async def fill() -> None:
        async with hf.Engine(store, modules=[code]) as engine:
            for each in ("old-1", "old-2", "closed"):
                await engine.start(code.checkout, 300, id=each)
            await engine.start(code.elsewhere, id="other")
            for each in ("order-hat", "order-shoe"):
                await engine.start(code.buggy, each, id=f"buggy-{each}")
            await engine.get("closed").raise_event("go")
            await engine.get("closed").result(timeout=10)
            await until(lambda: rows(store, "SELECT count(*) FROM instances WHERE state = 'BLOCKED'") == [(2,)])
            await until(lambda: rows(store, "SELECT count(*) FROM history WHERE turn = 1") == [(3,)])

    asyncio.run(fill())
    return holdfast


def content(command: Command) -> list[object]:
    store = command.folder / "holdfast.db"
    return [rows(store, f"SELECT * FROM {table}") for table in ("instances", "history", "attempts", "inbox", "workers")]  # noqa: S608


def test_R16_replay_accepts_code_that_fits_and_changes_nothing(filled: Command) -> None:
    before = content(filled)
    done = filled("replay", "former.py")
    assert done.code == 0
    assert done.out == "5 open instances and 1 closed one checked: all fit this code\n"
    assert filled("replay", "patched.py").code == 0
    assert content(filled) == before


def test_R16_replay_prints_the_first_difference_once_and_ends_with_1(filled: Command) -> None:
    done = filled("replay", "plain.py", "--closed", "0", "--export", "out")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0] == "checkout  2 instances: old-1, old-2"
    assert lines[1].strip().startswith("the code does not match the history at step 1: recorded a call of activity")
    assert lines[-1] == "5 open instances and 0 closed ones checked: 2 open and 0 closed do not fit"
    assert sorted(path.name.partition("-")[0] for path in (filled.folder / "out").iterdir()) == ["old", "old"]
    plain = module_of(filled.folder / "plain.py")
    with pytest.raises(HistoryMismatch):
        hf.testing.Replayer(modules=[plain]).replay_all(filled.folder / "out")
    assert "1 closed do not fit" in filled("replay", "plain.py").out


def test_R16_replay_as_json(filled: Command) -> None:
    done = filled("replay", "plain.py", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["open"] == {"checked": 5, "failed": 2}
    assert found["closed"] == {"checked": 1, "failed": 1}
    [group] = found["groups"]
    assert (group["workflow"], group["count"]) == ("checkout", 3)
    assert [each["id"] for each in group["instances"]] == ["old-1", "old-2", "closed"]
    assert [each["state"] for each in group["instances"]] == ["RUNNING", "RUNNING", "COMPLETED"]


def test_R16_stored_inputs_are_decoded_as_the_types_of_today(filled: Command) -> None:
    done = filled("replay", "typed.py", "--workflow", "checkout", "--closed", "0")
    assert done.code == 1
    assert "Expected `bool`, got `int`" in done.out
    assert done.out.splitlines()[0] == "checkout  2 instances: old-1, old-2"


def test_R16_inputs_that_no_code_has_received_are_decoded(holdfast: Command) -> None:
    """Of an instance before its first turn, and of an activity that no worker has claimed."""
    waiting = ORIGINAL.replace("@hf.activity\nasync def charge", "@hf.activity(queue='far')\nasync def charge")
    holdfast.folder.joinpath("former.py").write_text(waiting, encoding="utf-8")
    changed = waiting.replace("charge(cents: int)", "charge(cents: str)").replace("charge(cents)", "charge('300')")
    holdfast.folder.joinpath("changed.py").write_text(changed, encoding="utf-8")
    holdfast.folder.joinpath("typed.py").write_text(OTHER_TYPE, encoding="utf-8")
    code = module_of(holdfast.folder / "former.py")
    store = holdfast.folder / "holdfast.db"

    async def fill() -> None:
        async with hf.Engine(store, modules=[code], queues=["default"]) as engine:
            await engine.start(code.checkout, 300, id="begun")
            await until(lambda: rows(store, "SELECT 1 FROM attempts"))
        async with await hf.connect(store) as client:
            await client.start("checkout", 300, id="requested")

    asyncio.run(fill())
    assert filled_ids(holdfast, "changed.py") == ["begun"]
    assert filled_ids(holdfast, "typed.py") == ["begun", "requested"]
    assert "the input of activity 'charge' (number 0) does not fit" in holdfast("replay", "changed.py").out


def filled_ids(command: Command, app: str) -> list[str]:
    found = json.loads(command("replay", app, "--json").out)
    return sorted(each["id"] for group in found["groups"] for each in group["instances"])


def test_R16_instances_without_code_are_counted_and_not_checked(filled: Command) -> None:
    done = filled("replay", "alone.py")
    assert done.code == 0
    assert "not checked: 1 open instance of elsewhere, not in APP" in done.out
    assert "not checked: 2 open instances of buggy, not in APP" in done.out
    assert "not checked" not in filled("replay", "alone.py", "--workflow", "checkout").out


def test_R15_patches_counts_branches_and_tells_what_is_safe(filled: Command) -> None:
    before = content(filled)
    lines = filled("patches", "patched.py").out.splitlines()
    assert lines[0].split() == ["workflow", "patch", "new", "old", "undecided", "safe", "to", "remove"]
    assert lines[1].split() == ["checkout", "stock", "0", "2", "0", "no:", "2,", "such", "as", "old-1"]
    [found] = json.loads(filled("patches", "patched.py", "--json").out)["patches"]
    assert found == {
        "workflow": "checkout",
        "version": "",
        "patch": "stock",
        "new": 0,
        "old": 2,
        "undecided": 0,
        "safe_to_remove": False,
        "in_the_way": 2,
        "examples": ["old-1", "old-2"],
    }
    for each in ("old-1", "old-2"):
        filled("terminate", each)
    assert filled("patches", "patched.py").out.splitlines()[1].split() == ["checkout", "stock", "0", "0", "0", "yes"]
    assert filled("patches", "former.py").out == "No patches.\n"
    assert len(before) == 5


def test_R15_patches_names_instances_that_do_not_replay_at_all(filled: Command) -> None:
    broken = PLAIN.replace('    await hf.event("go")\n    return receipt', '    hf.patched("late")\n    return receipt')
    filled.folder.joinpath("broken.py").write_text(broken, encoding="utf-8")
    out = filled("patches", "broken.py").out
    assert "checkout  late     0    0          2  no: 2, such as old-1" in out
    assert "2 open instances of checkout do not replay on this code: old-1, old-2" in out


def test_R16_instances_are_checked_on_their_own_versions(filled: Command) -> None:
    both = ORIGINAL + PLAIN.partition("@hf.workflow\n")[2].partition("@hf.workflow")[0].replace(
        "async def checkout", "@hf.workflow(name='checkout', version='2')\nasync def checkout_2"
    ).replace("await check_stock()", "hf.patched('stock') and await check_stock()")
    filled.folder.joinpath("both.py").write_text(both, encoding="utf-8")
    assert filled("replay", "both.py").code == 0
    assert filled("patches", "both.py").out.splitlines()[1].split() == ["checkout", "2", "stock", "0", "0", "0", "yes"]
    newest = both.replace("@hf.workflow\nasync def checkout(", "@hf.workflow(version='1')\nasync def checkout(")
    filled.folder.joinpath("newest.py").write_text(newest, encoding="utf-8")
    done = filled("replay", "newest.py")
    assert done.code == 1
    assert done.out.splitlines()[:2] == [
        "checkout  2 instances: old-1, old-2",
        "  'checkout' with no version is not in this code",
    ]
    assert "not checked: 2 open instances of checkout with no version" in filled("patches", "newest.py").out


def test_R17_blocked_groups_by_reason_and_proposes_what_to_do(filled: Command) -> None:
    lines = filled("blocked").out.splitlines()
    assert lines[0] == "buggy  2 instances"
    assert lines[1].startswith("  UndeclaredError: buggy raised KeyError: 'order-hat', which is no declared failure")
    assert lines[2].strip().startswith("File ")
    assert lines[4].startswith("  oldest buggy-order-hat, created 20")
    assert lines[5].startswith("  blocked by build ")
    assert "mend the code and deploy it, or declare the exception in fails_with=" in lines[6]
    [group] = json.loads(filled("blocked", "--json").out)["groups"]
    assert (group["count"], group["example"], len(group["builds"])) == (2, "buggy-order-hat", 1)
    assert filled("blocked", "--workflow", "checkout").out == "No blocked instances.\n"
    shown = filled("show", "buggy-order-shoe").out
    assert "blocked UndeclaredError: buggy raised KeyError" in shown
    assert "    raise KeyError(order)" in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["replay"], "Missing argument 'APP...'"),
        (["replay", "nothing.py"], "there is no file 'nothing.py'"),
        (["replay", "former.py", "--closed", "-1"], "--closed must be from 0 to 1,000,000, not -1"),
        (["replay", "former.py", "--workflow", "x"], "former.py: no workflow 'x'; it has buggy, checkout, elsewhere"),
        (["replay", "former.py", "--export", "former.py"], "--export former.py: File exists"),
        (["replay", "former.py", "--store", "none.db"], "there is no store at none.db"),
        (["patches", "former.py:checkout"], "names a part of a module"),
        (["patches", "empty.py"], "empty.py: no workflow; mark functions with @hf.workflow"),
        (["blocked", "--store", "none.db"], "there is no store at none.db"),
    ],
)
def test_wrong_input_is_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    filled.folder.joinpath("empty.py").write_text("", encoding="utf-8")
    assert sentence in filled.refused(*arguments)


def test_names_of_patches_are_found_in_the_code_of_a_package(tmp_path: Path) -> None:
    program = tmp_path / "named.py"
    program.write_text(
        """
import holdfast as hf
from holdfast import patched
from holdfast.audit.patches import names_in

def helper():
    return hf.patched("in-helper")

@hf.workflow
async def order(name: str) -> None:
    async def inner() -> bool:
        return patched(name="in-inner")
    if hf.patched("direct") and helper() and await inner():
        hf.patched(name)
    [hf.patched("in-list") for _ in range(2)]

print(sorted(names_in(order.fn)))
""",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "['direct', 'in-helper', 'in-inner', 'in-list']\n"
