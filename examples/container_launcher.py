"""A container for each external activity.

The worker claims the activity and runs `docker run --detach` (or
another runtime: CONTAINER_RUNTIME=podman). In the container
`holdfast activity run -- ./train.sh` takes the activity from its
environment, runs the program with the input on its standard input,
and reports the result. The container outlives the worker.

EXECUTOR_STORE is the store as the container reaches it, with a login
of its own. `holdfast activity run` needs the rights of a worker; a
program that reports by SQL needs the role of an executor. Without
the variable a file is used, in a folder that the container shares.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import holdfast as hf

RUNTIME = os.environ.get("CONTAINER_RUNTIME", "docker")
IMAGE = os.environ.get("TRAINER_IMAGE", "trainer")
COMMAND = ["holdfast", "activity", "run", "--", "./train.sh"]


@hf.activity(
    external=True,
    queue="gpu",
    heartbeat=60,
    claim_timeout=600,
    retry=hf.Retry(attempts=3, initial=1),
)
async def train(  # type: ignore[empty-body]
    model: str, epochs: int
) -> dict[str, float]: ...


@hf.workflow
async def learn(model: str) -> str:
    result = await train(model, epochs=3)
    return f"{model}: accuracy {result['accuracy']:.2f}"


class LaunchFailed(Exception):
    """The runtime did not start the container."""


class ContainerLauncher:
    """Starts a container for each task."""

    def __init__(self, store: str, folder: str) -> None:
        self._store = store
        self._folder = folder

    async def launch(self, task: hf.LaunchTask) -> None:
        """Return when the runtime has started the container."""
        given = {**task.environment, "HOLDFAST_STORE": self._store}
        words = [RUNTIME, "run", "--detach", "--rm"]
        # A runtime has one container of a name: one for each offer.
        words += ["--name", f"train-{task.activity_exec_id}"]
        words += ["--volume", f"{self._folder}:{self._folder}"]
        for name in given:  # values stay out of the process list
            words += ["--env", name]
        process = await asyncio.create_subprocess_exec(
            *words,
            IMAGE,
            *COMMAND,
            env={**os.environ, **given},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode:
            reason = errors.decode().strip()
            raise LaunchFailed(f"{RUNTIME} run: {reason}")
        container = output.decode().strip()[:12]
        print(f"{container} runs {task.activity_name}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "shop.db")
        launcher = ContainerLauncher(
            os.environ.get("EXECUTOR_STORE", path), folder
        )
        async with hf.Engine(
            os.environ.get("WORKER_STORE", path),
            workflows=[learn],
            activities=[train],
            launchers={"gpu": launcher},
        ) as engine:
            print(await engine.run(learn, "bert", id="learn-bert"))


if __name__ == "__main__":
    asyncio.run(main())
