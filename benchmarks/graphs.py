"""The workloads of flows as graphs: as fast as code (GRAPH), cheap when large (LATTICE), quick to load (LOAD)."""

import statistics
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import Sample, gather_bounded, processor_seconds
from benchmarks.pairs import BATCH, take_turns
from benchmarks.programs import chain_text, sequence, step
from benchmarks.workloads import IN_FLIGHT, STEPS
from holdfast.client.engine import Engine
from holdfast.flows.flow import Flow

NODES: Final = 1_000
WIDTH: Final = 10
SMALL: Final = 10
NO_INPUT: Final[dict[str, int]] = {}
MILLISECONDS: Final = 1_000
MICROSECONDS: Final = 1_000_000


def lattice_text(nodes: int, width: int) -> str:
    """A trigger and layers of so many nodes, each after two of the layer before; it adds one to what the first gave."""
    lines = [f"flow: lattice-{nodes}", "activities:", "  start: {trigger: true}"]
    for at in range(nodes - 1):
        layer, place = divmod(at, width)
        above = [f"n{layer - 1}_{(place + shift) % width}" for shift in (0, 1)]
        given, after = (f'"{above[0]}.output"', f"[{', '.join(above)}]") if layer else ("0", "start")
        lines.append(f"  n{layer}_{place}: {{run: step, input: {{number: {given}}}, after: {after}}}")
    return "\n".join([*lines, f'output: "n{(nodes - 2) // width}_0.output"'])


async def graph(store: Path, scale: float) -> Sample:
    """B1 as a graph and as code, in one engine."""
    flow = Flow.parse(chain_text(STEPS))
    async with Engine(store, workflows=[sequence], activities=[step], flows=[flow]) as engine:

        async def one_flow(number: int) -> None:
            if await engine.run(flow, NO_INPUT, id=f"flow-{number}") != STEPS:
                raise AssertionError(number)

        async def one_code(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"code-{number}") != STEPS:
                raise AssertionError(number)

        took = await take_turns(
            lambda number: gather_bounded(one_flow, BATCH, IN_FLIGHT, first=number * BATCH),
            lambda number: gather_bounded(one_code, BATCH, IN_FLIGHT, first=number * BATCH),
            scale,
            sizes=(BATCH * STEPS, BATCH * STEPS),
        )
    return {
        "of_code": took.speed,
        "cpu_of_code": took.processor,
        "steps_per_s": 1 / statistics.median(seconds for seconds, _ in took.mine),
        "code_steps_per_s": 1 / statistics.median(seconds for seconds, _ in took.other),
    }


async def lattice(store: Path, *, nodes: int, width: int) -> Sample:
    """So many nodes in all, in instances of one size, one instance after the other: what a node costs."""
    flow = Flow.parse(lattice_text(nodes, width))
    layers = (nodes - 2) // width + 1
    async with Engine(store, activities=[step], flows=[flow]) as engine:
        await engine.run(flow, NO_INPUT, id="warm-up")
        cpu, before = processor_seconds(), time.perf_counter()
        for number in range(NODES // nodes):
            if await engine.run(flow, NO_INPUT, id=f"it-{number}") != layers:
                raise AssertionError(number)
        return {
            "us_per_node": (time.perf_counter() - before) / NODES * MICROSECONDS,
            "cpu_us_per_node": (processor_seconds() - cpu) / NODES * MICROSECONDS,
        }


def load() -> Sample:
    """Loading and checking a flow of 1,000 nodes, once everything that takes part has been imported."""
    text = lattice_text(NODES, WIDTH)
    Flow.parse(lattice_text(SMALL, SMALL))
    before = processor_seconds()
    Flow.parse(text)
    return {"cpu_ms": (processor_seconds() - before) * MILLISECONDS}
