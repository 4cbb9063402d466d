"""The number of losses after which an instance is claimed alone is in statements, where indexes need it (G12)."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.core.leases import SUSPECT_AFTER

STORAGE = Path(holdfast.__file__).parent / "storage"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_G12_statements_and_index_agree_about_who_is_under_suspicion(store: str) -> None:
    claim = (STORAGE / store / "sql" / "claim_instances.sql").read_text("utf-8")
    assert set(re.findall(r"losses (<|>=) (\d+)", claim)) == {(">=", str(SUSPECT_AFTER)), ("<", str(SUSPECT_AFTER))}
    choices = [line for line in claim.splitlines() if "owner IS NULL" in line]
    assert all("losses" in line for line in choices), "wherever one is chosen it is known whether it is under suspicion"
    schema = (STORAGE / store / "migrations" / "0001_first.sql").read_text("utf-8")
    assert f"instances_suspected ON instances (owner, claimable_at_ms) WHERE losses >= {SUSPECT_AFTER};" in schema
