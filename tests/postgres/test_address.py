"""The URL of a PostgreSQL store: our own options are checked, the rest is libpq's, and secrets are shown nowhere."""

import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.postgres.address import Address, parse

SECRET = "hunter2-%/@:?#&= ü"  # noqa: S105 - not a real one


def test_a_plain_url_has_defaults() -> None:
    found = parse("postgresql://app@db.example/shop")
    assert found == Address(
        (("dbname", "shop"), ("host", "db.example"), ("user", "app")), schema="holdfast", notify=True
    )
    assert found.channel == "holdfast_holdfast"
    assert parse("postgres://app@db.example/shop") == found


def test_our_own_options_are_taken_out() -> None:
    found = parse("postgresql:///shop?schema=orders_2&notify=false&poll_seconds=1.5&sslmode=require")
    assert (found.schema, found.notify, found.poll_seconds) == ("orders_2", False, 1.5)
    assert dict(found.parameters) == {"dbname": "shop", "sslmode": "require"}


def test_what_is_libpqs_is_left_to_it() -> None:
    several = parse("postgresql://app@one:5433,two:5434/shop?target_session_attrs=read-write&load_balance_hosts=random")
    assert dict(several.parameters) == {
        "dbname": "shop",
        "host": "one,two",
        "load_balance_hosts": "random",
        "port": "5433,5434",
        "target_session_attrs": "read-write",
        "user": "app",
    }
    assert dict(parse("postgresql://?service=shop").parameters) == {"service": "shop"}
    assert dict(parse("postgresql://h/d?client_encoding=utf-8").parameters)["client_encoding"] == "utf-8"
    assert dict(parse("postgresql://%2Fvar%2Frun/shop").parameters)["host"] == "/var/run"
    assert dict(parse("postgresql://[::1]:5433/shop").parameters)["host"] == "::1"
    assert dict(parse("postgresql://h/shop?ssl=true").parameters)["sslmode"] == "require"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("shop.db", "begins with postgresql://"),
        ("postgresql+psycopg://h/d", "begins with postgresql://, and this one with 'postgresql.psycopg'"),
        ("postgresql://h/d?shema=x", "'shema' is no option of a PostgreSQL store: did you mean schema"),
        ("postgresql://h/d?notifiy=false", "did you mean notify"),
        ("postgresql://h/d?ssl_mode=require", "did you mean sslmode"),
        ("postgresql://h/d?client_encoding=SJIS", "client_encoding='SJIS': Holdfast sends UTF8; leave it out"),
        ("postgresql://h/d?qqq=1", "Holdfast's own are schema, notify, poll_seconds"),
        ("postgresql://h/d?schema", "schema has no value"),
        ("postgresql://h/d?schema=a&schema=b", "schema is given twice"),
        ("postgresql://h/d?schema=", "schema='': a schema's name"),
        ("postgresql://h/d?schema=My%20App", "schema='My App': a schema's name is made of a-z, 0-9 and _"),
        ("postgresql://h/d?schema=1st", "begins with no digit"),
        (f"postgresql://h/d?schema={'x' * 64}", "63 characters at most"),
        ("postgresql://h/d?schema=pg_mine", "PostgreSQL's own"),
        ("postgresql://h/d?schema=information_schema", "PostgreSQL's own"),
        ("postgresql://h/d?notify=maybe", "notify='maybe': it is true or false"),
        ("postgresql://h/d?poll_seconds=soon", "poll_seconds='soon' is no number of seconds"),
        ("postgresql://h/d?poll_seconds=nan", "from 0.01 to 60 seconds"),
        ("postgresql://h/d?poll_seconds=0", "from 0.01 to 60 seconds"),
        ("postgresql://h:port/d", "the port in the URL is no number"),
        ("postgresql://h:70000/d", "the port in the URL is no number"),
        ("postgresql://u:50%@h/d", "the password in the URL has a %"),
        ("postgresql://u:a%ffb@h/d", "the password in the URL is no UTF-8"),
        ("postgresql://u:a%00b@h/d", "the password in the URL has a NUL"),
        ("postgresql://h/d?application_name=%zz", "percent-encoded"),
        ("postgresql://[::1/d", "IPv6"),
    ],
)
def test_a_wrong_part_is_named(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(url)


def test_a_secret_is_used_and_never_shown() -> None:
    hidden = quote(SECRET, safe="")
    for url in (f"postgresql://app:{hidden}@h/d", f"postgresql://app@h/d?password={hidden}&schema=x"):
        found = parse(url)
        assert dict(found.parameters)["password"] == SECRET
        for text in (repr(found), str(found), f"{found}"):
            assert "hunter2" not in text
            assert "app@h/d" in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2/x@h/d",
        "postgresql://app:hunter2@x@h/d",
        "postgresql://app:hunter2%@h/d",
        "postgresql://app:hunter2%zz@h/d",
        "postgresql://app:hunter2/d",
        "postgresql://app@h/d?password=hunter2%q",
        "postgresql://app@h/d?sslpassword=hunter2&shema=x",
        "postgresql://app:hunter2@[::1/d",
    ],
)
def test_a_complaint_does_not_show_a_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|option") as caught:
        parse(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app@one:5433,two:5434/shop?connect_timeout=3&schema=x&notify=false",
        "postgresql://%2Fvar%2Frun:5433/shop?schema=x",
        "postgresql://[::1]:5433/shop?schema=x",
        "postgresql:///?schema=x&service=shop",
    ],
)
def test_what_is_shown_can_be_read_again(url: str) -> None:
    assert parse(str(parse(url))) == parse(url)


@given(st.from_regex(r"[a-z_][a-z0-9_]{0,62}", fullmatch=True).filter(lambda name: not name.startswith("pg_")))
def test_a_channel_has_a_name_that_postgresql_does_not_cut(schema: str) -> None:
    if schema != "information_schema":
        channel = parse(f"postgresql:///d?schema={schema}").channel
        assert len(channel.encode()) <= 63
        assert schema[:30] in channel


def test_channels_of_long_names_differ() -> None:
    long = ["x" * 62 + end for end in "ab"]
    assert len({parse(f"postgresql:///d?schema={name}").channel for name in long}) == 2


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for url in (text, f"postgresql://{text}", f"postgresql://h/d?{text}"):
        try:
            parse(url)
        except ValueError:
            continue


CONNECT = "import asyncio, holdfast; asyncio.run(holdfast.connect('postgresql://h/d').__aenter__())"
LIST = "from holdfast.cli import main; sys.argv[1:] = ['list', '--store', 'postgresql://h/d']; main()"
VERIFY = "from holdfast.cli import main; sys.argv[1:] = ['verify', '--store', 'postgresql://h/d']; main()"


@pytest.mark.parametrize("use", [CONNECT, LIST, VERIFY], ids=["connect", "list", "verify"])
def test_without_psycopg_the_error_names_the_extra_to_install(use: str) -> None:
    code = f"import sys; sys.modules['psycopg'] = None; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "a PostgreSQL store needs psycopg: pip install 'holdfast[postgres]'" in done.stderr
    assert done.returncode == (1 if use is CONNECT else 3)
