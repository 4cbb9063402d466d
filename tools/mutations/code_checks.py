"""Mutants of patches, of checks of code, and of workflows that block on errors (R14-R19)."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

PATCHES: Final = "tests/scenarios/test_patches.py"
SAFETY: Final = "tests/scenarios/test_patch_safety.py"
BLOCKING: Final = "tests/scenarios/test_on_error_block.py"
COMMANDS: Final = "tests/unit/cli/test_code_checks.py"

CODE_CHECKS: Final = (
    in_python(
        "a patch is true in a replay of a history without it",
        "R14",
        "replay/run",
        "decision = patches[name] = not context.replaying",
        "decision = patches[name] = True",
        PATCHES,
    ),
    in_python(
        "a patch is decided at every call",
        "R14",
        "replay/run",
        "        decision = patches.get(name)\n        if decision is None:",
        "        decision = patches.get(name) or None\n        if decision is None:",
        PATCHES,
    ),
    in_python(
        "a replay forgets the recorded patches",
        "R14",
        "replay/run",
        "self._patches = (self._patches or {}) | patches",
        "self._patches = self._patches",
        PATCHES,
    ),
    in_python(
        "replay compares recorded patches with the code",
        "R14",
        "replay/run",
        "elif type(event) is ev.PatchApplied:",
        "elif type(event) is ev.PatchApplied and not self._patches:",
        PATCHES,
    ),
    in_python(
        "a patch counts in the length of the history",
        "R14",
        "replay/run",
        "                self._length -= 1\n",
        "",
        PATCHES,
    ),
    in_python(
        "instances on the old branch are not replayed without the call",
        "R15",
        "audit/patches",
        "await check.replay(record, loaded, [name])",
        "await check.replay(record, loaded)",
        SAFETY,
    ),
    in_python(
        "every instance on the old branch is in the way",
        "R15",
        "audit/patches",
        "if without.problem and not as_it_is.problem:",
        "if not as_it_is.problem:",
        SAFETY,
    ),
    in_python(
        "instances that do not replay are not in the way",
        "R15",
        "audit/patches",
        "tally.hindered[name] + tally.broken - tally.mended[name]",
        "tally.hindered[name]",
        SAFETY,
    ),
    in_python(
        "stored inputs are not decoded",
        "R16",
        "audit/replays",
        "            await self._check_inputs(record, loaded)\n",
        "            pass\n",
        COMMANDS,
    ),
    in_sql(
        "instances without an owner are not checked",
        "R16",
        "open_numbers",
        "WHERE owner IS NULL AND closed_at_ms IS NULL",
        "WHERE owner IS NULL AND closed_at_ms IS NOT NULL",
        COMMANDS,
    ),
    in_python(
        "reasons are grouped with their values",
        "R17",
        "client/views/reasons",
        "if raised and frames:",
        "if raised and not frames:",
        COMMANDS,
    ),
    in_python(
        "a bug ends the instance",
        "R18",
        "replay/run",
        "if declared is not None and not context.replaying and not is_declared(error, declared):",
        "if declared is not None and context.replaying and not is_declared(error, declared):",
        BLOCKING,
    ),
    in_python(
        "a recorded failure does not replay once bugs block",
        "R18",
        "replay/run",
        "if declared is not None and not context.replaying and not is_declared(error, declared):",
        "if declared is not None and not is_declared(error, declared):",
        BLOCKING,
    ),
    in_python(
        "one declared member declares a group",
        "R18",
        "replay/undeclared",
        "return all(is_declared(member, declared)",
        "return any(is_declared(member, declared)",
        BLOCKING,
    ),
    in_python(
        "base classes of an unknown exception do not declare it",
        "R18",
        "replay/undeclared",
        "names.isdisjoint((error.type_name, *error.bases))",
        "names.isdisjoint((error.type_name,))",
        BLOCKING,
    ),
    in_python(
        "an overdue instance is blocked",
        "R19",
        "replay/run",
        '            self._fail(_overdue(self._cancel_reason or "", error))\n            return\n',
        '            error = _overdue(self._cancel_reason or "", error)\n',
        BLOCKING,
    ),
)
