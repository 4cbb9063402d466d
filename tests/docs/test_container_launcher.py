"""The example of a container launcher, with a stand-in for the container runtime on PATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = """#!/bin/sh
# run --detach --rm --name NAME [--env NAME]... [--volume FROM:TO] IMAGE COMMAND...: the command runs here.
echo "$*" >> "$CALLS"
if [ -n "$FAILS_ONCE" ] && [ ! -e "$CALLS.failed" ]; then
    touch "$CALLS.failed"
    echo "no space left on the device" >&2
    exit 125
fi
while [ "$1" != trainer ]; do shift; done
shift
cd "$HOME_OF_IMAGE" || exit 1
"$@" > "$CALLS.output" 2>&1 &
echo 0123456789abcdef
"""
TRAIN = """#!/bin/sh
cat > given.json
echo '{"accuracy": 0.87}'
"""


def program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("fails_once", ["", "1"], ids=["starts", "fails once"])
def test_C4_the_example_starts_a_container_for_each_activity(tmp_path: Path, fails_once: str) -> None:
    programs, image = tmp_path / "bin", tmp_path / "image"
    programs.mkdir()
    image.mkdir()
    program(programs / "docker", STAND_IN)
    program(
        programs / "holdfast", f'#!/bin/sh\nexec {sys.executable} -c "from holdfast.cli import main; main()" "$@"\n'
    )
    program(image / "train.sh", TRAIN)
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / "container_launcher.py"],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "CALLS": str(tmp_path / "calls"),
            "HOME_OF_IMAGE": str(image),
            "FAILS_ONCE": fails_once,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert "bert: accuracy 0.87" in ended.stdout, ended.stderr
    assert "0123456789ab runs train" in ended.stdout
    assert len(calls) == (2 if fails_once else 1)
    assert all("--env HOLDFAST_CLAIM " in call and "--env HOLDFAST_STORE " in call for call in calls)
    assert ("no space left on the device" in ended.stderr) == bool(fails_once)
    assert (image / "given.json").read_text("utf-8").strip() == '{"model":"bert","epochs":3}'
