"""``holdfast worker`` with what it cannot work with. How it works is in ``tests/workers``."""

import pytest
from tests.unit.cli.commands import Command


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["nowhere"], "there is no module 'nowhere'"),
        (["broken.py"], "broken.py cannot be imported: ValueError: no (line 1 of broken.py)"),
        (["empty.py"], "empty.py: no workflow and no activity"),
        (["shop.py:checkout"], "names a part of a module"),
        (["shop.py", "--queues", "a,,b"], "--queues 'a,,b' has an empty name"),
        (["shop.py", "--queues", ""], "has an empty name"),
        (["shop.py", "--queues", "a\x01b"], "must not contain"),
        (["shop.py", "--concurrency", "0"], "--concurrency must be an integer from 1"),
        (["shop.py", "--concurrency", "many"], "'--concurrency'"),
        (["shop.py", "--lease", "0.5"], "--lease must be 1 to 3,600 seconds, not 0.5"),
        (["shop.py", "--lease", "nan"], "--lease must be"),
        (["shop.py", "--lease", "1e9"], "--lease must be"),
        (
            ["shop.py", "--context", "make_clients"],
            "--context 'make_clients' names no function; write FILE.py:FUNCTION",
        ),
        (["shop.py", "--context", "empty.py:make"], "--context 'empty.py:make': empty.py has no 'make'"),
        (["shop.py", "--context", "empty.py:NUMBER"], "context takes a function"),
        (["shop.py", "--drain-timeout", "-1"], "--drain-timeout must be"),
        (["shop.py", "--store", "ftp://x"], "nor a postgresql:// URL"),
        (["shop.py", "--store", ":memory:"], "memory"),
        ([], "APP"),
    ],
    ids=str,
)
def test_bad_input_is_told_and_makes_no_store(holdfast: Command, words: list[str], sentence: str) -> None:
    (holdfast.folder / "broken.py").write_text("raise ValueError('no')\n", "utf-8")
    (holdfast.folder / "empty.py").write_text("import holdfast\n\nNUMBER = 7\n", "utf-8")
    assert sentence in holdfast.refused("worker", *words)
    assert not list(holdfast.folder.glob("*.db*"))


def test_a_store_that_cannot_be_opened_is_code_3(holdfast: Command) -> None:
    (holdfast.folder / "damaged.db").write_bytes(b"no database at all" * 100)
    done = holdfast("worker", "shop.py", "--store", "damaged.db")
    assert (done.code, done.out) == (3, "")
