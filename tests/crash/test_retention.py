"""Death by SIGKILL at every commit of a deletion and at every write of an archive (R32, R35; scenarios 21 and 22)."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from tests.crash import retention_apps as apps
from tests.crash.killed import was_killed
from tests.scenarios.kinds import named
from tests.scenarios.support import rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.client.archive import ArchiveWriter, archive_file, read_archive
from holdfast.errors import ArchiveError
from holdfast.runtime.platform import FaultPoint

APPS = "tests.crash.retention_apps"
MOST = 40
POINTS = [FaultPoint.BEFORE_COMMIT.value, FaultPoint.AFTER_COMMIT.value]


def ids(store: Path) -> set[str]:
    return {instance for (instance,) in rows(store, "SELECT id FROM instances")}


def families_are_whole(store: Path) -> None:
    """Each family is there with both members, or not at all, and no row belongs to a deleted one."""
    assert audit(store) == []
    assert "open" in ids(store)
    roots = rows(store, "SELECT number FROM instances WHERE workflow = 'outer'")
    children = rows(store, "SELECT parent FROM instances WHERE parent IS NOT NULL")
    assert sorted(roots) == sorted(children)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ["delete", "prune"])
def test_R32_a_crash_at_every_commit_of_a_deletion_leaves_whole_families(tmp_path: Path, name: str, point: str) -> None:
    for at in range(1, MOST):
        store = tmp_path / f"{at}.db"
        together(apps.fill(named(store)))
        died = was_killed(APPS, store, name, point, at)
        families_are_whole(store)
        assert not was_killed(APPS, store, name)
        families_are_whole(store)
        left = {each.split("/")[0] for each in ids(store)}
        assert left == ({"open"} if name == "prune" else {"open", "o0", "o2"})
        if not died:
            assert at >= (2 if name == "delete" else apps.FAMILIES), "the faults never happened"
            return
    pytest.fail("it still died")


@pytest.mark.slow
@pytest.mark.parametrize("point", [*apps.WRITES, *POINTS])
def test_21_no_instance_is_gone_without_its_line_and_no_line_is_written_twice(tmp_path: Path, point: str) -> None:
    for at in range(1, MOST):
        store = tmp_path / f"{at}.db"
        archive = tmp_path / f"{at}.jsonl.gz"
        together(apps.fill(named(store)))
        everything = ids(store) - {"open"}
        died = was_killed(APPS, store, "archive", point, at)
        families_are_whole(store)
        has_manifest = archive.with_name(f"{archive.name}.manifest").exists()
        readable = {each.id for each in read_archive(archive)} if has_manifest else set[str]()
        assert everything <= readable | ids(store)
        assert not was_killed(APPS, store, "archive")
        assert ids(store) == {"open"}
        found = list(read_archive(archive))
        assert Counter(each.id for each in found) == dict.fromkeys(everything, 1)
        assert all(each.executions[0]["turns"] for each in found)
        lines = gzip.decompress(archive.read_bytes()).splitlines()
        assert len(lines) == len(everything), "nothing but whole slices is in the file"
        with ArchiveWriter(archive, together(_store_name(store))) as writer:
            assert writer.pending == {}, "every slice is noted as deleted"
        if not died:
            assert at > 3, "the faults never happened"
            return
    pytest.fail("it still died")


async def _store_name(store: Path) -> str:
    from holdfast.client.client import store_of  # noqa: PLC0415 - for this test alone
    from holdfast.client.retention import store_name  # noqa: PLC0415

    async with hf.connect(named(store)) as client:
        return await store_name(store_of(client))  # type: ignore[arg-type]


def test_R35_an_archive_that_was_changed_is_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "old"
    with ArchiveWriter(archive, "store") as writer:
        writer.write([(1, b'{"number": 1}')])
    with pytest.raises(ArchiveError, match="no instance"):
        list(read_archive(archive))
    data = bytearray(archive.read_bytes())
    data[20] ^= 1
    archive.write_bytes(data)
    with pytest.raises(ArchiveError, match="SHA-256"):
        list(read_archive(archive))
    archive.write_bytes(data[:-1])
    with pytest.raises(ArchiveError, match="shorter"), ArchiveWriter(archive, "store"):
        pass


def test_R35_an_archive_belongs_to_one_store_and_one_writer(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert archive_file(tmp_path / "folder") == tmp_path / "folder" / "archive.jsonl.gz"
    archive = tmp_path / "old"
    with ArchiveWriter(archive, "store") as writer:
        assert writer.path == archive
        with pytest.raises(ArchiveError, match="another process"), ArchiveWriter(archive, "store"):
            pass
    with pytest.raises(ArchiveError, match="another store"), ArchiveWriter(archive, "other"):
        pass
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ArchiveError, match="no manifest"), ArchiveWriter(tmp_path / "text", "store"):
        pass
    with pytest.raises(ArchiveError, match="cannot be written"), ArchiveWriter(tmp_path / "none" / "old", "store"):
        pass
    with pytest.raises(ArchiveError, match="manifest"):
        list(read_archive(tmp_path / "nothing"))
    assert archive.stat().st_mode & 0o777 == 0o600


def test_22_a_full_disk_of_the_archive_stops_the_prune_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "shop.db"
    together(apps.fill(named(store)))
    before = ids(store)
    real = os.fsync
    calls: list[int] = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        real(descriptor)

    async def prune() -> int:
        async with hf.connect(named(store)) as client:
            return (await client.prune(older_than=0, archive=tmp_path / "old")).instances

    monkeypatch.setattr("holdfast.client.archive.os.fsync", full)
    with pytest.raises(ArchiveError, match="No space left"):
        together(prune())
    assert ids(store) == before
    monkeypatch.setattr("holdfast.client.archive.os.fsync", real)
    assert together(prune()) == 2 * apps.FAMILIES
    assert Counter(each.id for each in read_archive(tmp_path / "old")) == dict.fromkeys(before - {"open"}, 1)
    assert ids(store) == {"open"}


def test_R35_what_an_interruption_left_behind_the_last_slice_is_cut_off(tmp_path: Path) -> None:
    archive = tmp_path / "old"
    with ArchiveWriter(archive, "store") as writer:
        writer.write([(1, b"{}")])
        writer.deleted(1)
    whole = archive.read_bytes()
    noted = writer.manifest_path.read_bytes()
    archive.write_bytes(whole + b"half of a slice" * 100)
    writer.manifest_path.write_bytes(noted + b'{"kind":"sli')
    with ArchiveWriter(archive, "store") as again:
        assert again.pending == {}
    assert archive.read_bytes() == whole
    assert writer.manifest_path.read_bytes() == noted
