"""A shell script runs the activity of a workflow, by the open contract.

The workflow is Python. The activity is a declaration without a body:
`holdfast activity run` claims it, gives its arguments to a script as
JSON, and reports the result. The script fails once and is retried.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast as hf

SCRIPT = """
read -r arguments  # {"title": "Kelp", "frames": 24}
if [ "$HOLDFAST_ATTEMPT" = 1 ]; then
    echo "the disk is full" >&2
    exit 1
fi
echo '"kelp.mp4"'
"""


@hf.activity(
    external=True,
    queue="render",
    heartbeat=30,
    retry=hf.Retry(attempts=3, initial=0.1),
)
async def render(title: str, frames: int) -> str:
    raise NotImplementedError


@hf.workflow
async def film(title: str) -> str:
    return await render(title, frames=24)


def run_script(store: Path) -> str:
    """Claim one activity and run the script. The end of both."""
    command = [sys.executable, "-m", "holdfast", "activity", "run"]
    options = [
        "--queue",
        "render",
        "--wait",
        "30",
        "--store",
        str(store),
    ]
    done = subprocess.run(
        [*command, *options, "--", "bash", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
    )
    state, activity, *_ = done.stdout.splitlines()[-1].split()
    return f"{state} {activity}, exit code {done.returncode}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "studio.db"
        async with hf.Engine(
            store, workflows=[film], activities=[render]
        ) as engine:
            handle = await engine.start(film, "Kelp", id="film-1")
            for _ in range(2):
                print(
                    "script:",
                    await asyncio.to_thread(run_script, store),
                )
            print("film-1:", await handle.result())
            print("attempts:", len((await handle.describe()).attempts))


if __name__ == "__main__":
    asyncio.run(main())
