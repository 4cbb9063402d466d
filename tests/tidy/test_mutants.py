"""The list of mutants is in step with the code: every edit applies once, and its tests are there."""

import ast
from pathlib import Path

import pytest
from tools.mutants import EditDoesNotApply, edited
from tools.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
FEWEST = 24


def test_there_are_enough_mutants_and_no_two_are_the_same() -> None:
    assert len(MUTANTS) >= FEWEST
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_an_edit_applies_exactly_once_and_leaves_a_program(mutant: Mutant) -> None:
    text = edited(mutant)
    assert mutant.new in text
    if mutant.file.endswith(".py"):
        ast.parse(text)
    for test in mutant.tests:
        file, _, name = test.partition("::")
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name}" in source or f"class {name}(" in source


def test_an_edit_that_does_not_apply_names_the_mutant_and_its_text() -> None:
    gone = Mutant("a guard is dropped", "G1", "pyproject.toml", "no such text", "", ())
    with pytest.raises(EditDoesNotApply, match="a guard is dropped: 'no such text' is 0 times in pyproject"):
        edited(gone)
