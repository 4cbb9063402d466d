"""The public API is typed: pyright complains about the wrong uses of `uses.py`, and about nothing else in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USES = Path(__file__).with_name("uses.py")


@pytest.mark.slow
def test_pyright_finds_exactly_the_wrong_uses(tmp_path: Path) -> None:
    config = {
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
    }
    (tmp_path / USES.name).write_bytes(USES.read_bytes())
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(ran.stdout)
    assert found["summary"]["filesAnalyzed"] == 1, ran.stdout
    complaints = {item["range"]["start"]["line"] + 1: item["message"] for item in found["generalDiagnostics"]}
    lines = USES.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# type: ignore[" in line}
    assert len(marked) >= 10
    assert {number: complaints[number] for number in complaints if number not in marked} == {}
    assert marked - set(complaints) == set(), "these are wrong and pyright does not say so"
