"""Flows: the key moves in the commit of the turn (K2), and a definition stays as it was first saved."""

import msgspec

from holdfast.storage.contract import Fence, Rejected, SaveFlow
from holdfast.testing.conformance.bench import ANNA, Bench, Rules, applied, check, closing, first_turn, start, turn


def saved(name: str, definition: bytes) -> SaveFlow:
    return SaveFlow(hash=f"hash of {name}", name=name, version="1", definition=definition)


class FlowRules(Rules):
    """What `Turn.key` and `SaveFlow` mean."""

    def test_K2_the_key_is_that_of_the_last_turn(self) -> None:
        async def case(bench: Bench) -> None:
            first = msgspec.structs.replace(first_turn(ANNA), key="986")
            await bench.one(start("a", first=first))
            record, other = await bench.instance("a"), await bench.started("b")
            check(await bench.store.read_key(record.number) == "986")
            check(await bench.store.read_key(other.number) is None, "a workflow written as code has none")
            check(applied(await bench.one(turn(record, key="966"))))
            check(await bench.store.read_key(record.number) == "966")
            check(applied(await bench.one(turn(await bench.instance("a")))))
            check(await bench.store.read_key(record.number) == "966", "a turn that says nothing leaves it")
            check(applied(await bench.one(closing(await bench.instance("a"), key="666"))))
            check(await bench.store.read_key(record.number) == "666")

        self.on_bench(case)

    def test_K2_G1_a_rejected_turn_moves_no_digit(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, key="986"))))
            record = await bench.instance("a")
            for stale in (turn(record, key="666", fence=Fence(record.fence + 1)), turn(record, key="666", turn=0)):
                check(isinstance(await bench.one(stale), Rejected))
            check(await bench.store.read_key(record.number) == "986")
            check((await bench.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_K1_a_definition_is_kept_under_its_hash_and_never_changed(self) -> None:
        async def case(bench: Bench) -> None:
            check(await bench.store.read_flow("hash of fox") is None)
            check(applied(await bench.one(saved("fox", b'{"flow": 1}'))))
            check(all(map(applied, await bench.commit(saved("fox", b"other"), saved("hen", b"{}")))))
            check(await bench.store.read_flow("hash of fox") == b'{"flow": 1}')
            check(await bench.store.read_flow("hash of hen") == b"{}")

        self.on_bench(case)
