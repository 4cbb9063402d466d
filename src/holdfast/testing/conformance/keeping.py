"""Key-values: they change with the turn that changes them, or not at all (G11), and belong to the instance (G4)."""

from holdfast.storage.contract import Fence, InstanceNumber, Rejected, StateValue
from holdfast.testing.conformance.bench import Bench, Rules, applied, check, closing, start, turn


def kept(**values: bytes | None) -> tuple[StateValue, ...]:
    return tuple(StateValue(key=key, value=value) for key, value in values.items())


class KeepingRules(Rules):
    """What `Turn.kept` means."""

    def test_G11_key_values_commit_with_their_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            other = await bench.started("b")
            check(await bench.store.read_kept(record.number) == {})
            check(applied(await bench.one(turn(record, kept=kept(a=b"1", b=b"2")))))
            check(await bench.store.read_kept(record.number) == {"a": b"1", "b": b"2"})
            check(await bench.store.read_kept(other.number) == {})
            record = await bench.instance("a")
            check(applied(await bench.one(turn(record, kept=kept(a=b"3", b=None, never=None)))))
            check(await bench.store.read_kept(record.number) == {"a": b"3"})

        self.on_bench(case)

    def test_G11_a_rejected_turn_keeps_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            stale = turn(record, fence=Fence(record.fence + 1), kept=kept(a=b"1"))
            check(isinstance(await bench.one(stale), Rejected))
            check(await bench.store.read_kept(record.number) == {})

        self.on_bench(case)

    def test_G11_what_the_last_turn_kept_stays_and_the_status_is_listed(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            status = (StateValue(key="", value=b'"done"'), StateValue(key="k", value=b"1"))
            check(applied(await bench.one(closing(record, kept=status))))
            check(await bench.store.read_kept(record.number) == {"": b'"done"', "k": b"1"})
            (listed,) = await bench.store.list_instances(before=2**62, limit=10)
            check(listed.custom_status == b'"done"')

        self.on_bench(case)

    def test_G11_a_glance_has_the_instance_with_its_status_and_the_events_of_its_last_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await bench.store.glance(InstanceNumber(record.number + 1)) is None)
            second = turn(record, kept=(StateValue(key="", value=b'"half"'),))
            check(applied(await bench.one(second)))
            found = await bench.store.glance(record.number)
            check(found is not None and found[0].turn == record.turn + 1 and found[0].custom_status == b'"half"')
            check(found is not None and found[1] == second.events)
            await bench.one(start("b"))
            unbegun = await bench.store.glance((await bench.instance("b")).number)
            check(unbegun is not None and unbegun[1] is None, "there is no turn to be seen yet")

        self.on_bench(case)
