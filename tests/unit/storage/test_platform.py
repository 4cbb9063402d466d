"""On Windows definitions can be imported, and opening a store says what is not supported."""

import subprocess
import sys
from pathlib import Path

import pytest

AS_ON_WINDOWS = """
import asyncio, concurrent.futures, logging, multiprocessing, os, random, subprocess, sys, time, zoneinfo
sys.platform = "win32"
sys.modules["fcntl"] = None
for module, name in ((os, "register_at_fork"), (os, "getuid"), (time, "CLOCK_BOOTTIME"), (time, "CLOCK_MONOTONIC")):
    if hasattr(module, name):
        delattr(module, name)
import holdfast as hf

@hf.activity
async def act() -> int: return 1

@hf.workflow
async def flow() -> int: return await act()

async def main() -> None:
    async with {opened}: pass

try:
    asyncio.run(main())
except hf.StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "opened", ["hf.Engine('shop.db', workflows=[flow])", "hf.connect('shop.db')", "hf.Engine('postgresql:///shop')"]
)
def test_opening_a_store_on_windows_is_one_sentence(opened: str, tmp_path: Path) -> None:
    code = AS_ON_WINDOWS.format(opened=opened)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == (
        "stores are not supported on Windows: they need POSIX file locks and sockets; "
        "run Holdfast in WSL or in a Linux container\n"
    ), done.stderr
