"""A folder for the commands about flows: activities, a flow in YAML, its child, and a program that has both."""

from pathlib import Path

TASKS = '''
"""What the foxes do."""

import asyncio

import holdfast as hf


class TooTired(Exception):
    """A fox that does not run."""


@hf.activity
async def brown() -> str:
    return "brown"


@hf.activity(retry=hf.Retry(attempts=2, initial=0.01, jitter=False))
async def fox(speed: int) -> int:
    if speed < 0:
        raise TooTired(f"at {speed}")
    return speed


@hf.activity
async def jump() -> str:
    return "jumped"


@hf.activity
async def nap() -> str:
    return "x" * 200_000


@hf.workflow
async def pack(name: str) -> str:
    return await brown()


flow = hf.Flow.load("fox.yaml")
family = hf.Flow.load("family.yaml")
'''
FOX = """flow: fox
input: {speed: integer}
activities:
  quick: {trigger: true}
  brown: {run: tasks.brown, after: quick}
  fox: {run: tasks.fox, after: brown, input: ["quick.input.speed"]}
  jumped: {run: tasks.jump, after: fox, when: "fox.output > 3"}
  slept: {run: tasks.nap, after: fox, when: "fox.output <= 3"}
  ate: {wait: {event: dinner, timeout: 1h}, after: slept}
  wept: {run: tasks.jump, after: {fox: {catch: [TooTired]}}}
output: "fox.output"
"""
"""Its key: ate, brown, fox, jumped, quick, slept, wept."""
FAMILY = """flow: family
activities:
  start: {trigger: true}
  cubs: {flow: pack, each: '["a", "b"]', after: start}
  elder: {flow: fox, after: start, input: {speed: "7"}}
  count: {run: tasks.brown, after: [cubs, elder]}
  again: {cycle: count, after: count, when: "count.output == 'none'"}
"""


def write_files(folder: Path) -> None:
    for name, text in {"tasks.py": TASKS, "fox.yaml": FOX, "family.yaml": FAMILY}.items():
        (folder / name).write_text(text, encoding="utf-8")
