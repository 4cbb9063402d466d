"""An agent on a streaming language model, with tools. No real model.

    python examples/agent.py

The model is an activity that yields tokens. Every token is recorded
once: after the process dies in the middle of an answer, the next one
asks the model to continue behind the tokens that are recorded. Tools
are activities, so a tool call that has ended is not repeated.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import holdfast as hf

MAX_ROUNDS = 5


async def fake_model(messages: list[str]) -> AsyncIterator[str]:
    """Stands for the client of a model: the next answer in tokens."""
    if len(messages) == 1:
        answer = '{"tool": "weather", "city": "Lisbon"}'
    else:
        answer = f"Take sunglasses: {messages[-1]} in Lisbon ."
    for token in answer.split():
        await asyncio.sleep(0.02)
        yield token


@hf.activity(resumable=True, start_to_close=60)
async def ask_model(messages: list[str]) -> AsyncIterator[str]:
    skip = hf.activity_info().delivered  # by attempts before this one
    number = 0
    async for token in fake_model(messages):
        number += 1
        if number <= skip:
            continue
        yield token
        if len(messages) > 1 and os.environ.get("DIE_AT") == token:
            await asyncio.sleep(0.2)  # the token reaches the store
            print(f"the process dies after {token!r}", flush=True)
            os._exit(1)


@hf.activity
async def weather(city: str) -> str:
    print(f"tool: weather of {city}", flush=True)
    return "28 degrees and sun"


@hf.workflow
async def agent(question: str) -> str:
    messages = [question]
    for _ in range(MAX_ROUNDS):
        words: list[str] = []
        async for token in ask_model(messages):
            words.append(token)
            hf.set_status(" ".join(words))  # watchers see it grow
        answer = " ".join(words)
        if not answer.startswith("{"):
            return answer
        call = json.loads(answer)
        messages += [answer, await weather(call["city"])]
    raise RuntimeError(f"no answer after {MAX_ROUNDS} rounds")


async def answer_question(store: Path) -> None:
    async with hf.Engine(
        store, workflows=[agent], activities=[ask_model, weather]
    ) as engine:
        question = "What do I pack for Lisbon?"
        handle = await engine.start(agent, question, id="chat-1")
        if not handle.is_new:
            found = await handle.describe()
            print(f"recorded so far: {found.custom_status}")
        async for change in handle.watch():
            if change.state == "RUNNING" and change.custom_status:
                print(f"  {change.custom_status}", flush=True)
        print(f"answer: {await handle.result()}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "chats.db")
        subprocess.run(
            [sys.executable, __file__, str(store)],
            env={**os.environ, "DIE_AT": "degrees"},
            check=False,
        )
        asyncio.run(answer_question(store))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(answer_question(Path(sys.argv[1])))
    else:
        main()
