"""The address of a PostgreSQL store: `postgresql://user@host/database?schema=holdfast&notify=false`.

A few options are Holdfast's own; they are removed from the URL and checked. All others are passed to libpq: several
hosts, `target_session_attrs`, `sslmode`, `service`. Secrets appear in no text of this module, neither in the string of
an address nor in error messages about parts of the URL.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

SCHEMES: Final = ("postgresql", "postgres")
DEFAULT_SCHEMA: Final = "holdfast"
MOST_NAME_BYTES: Final = 63
"""PostgreSQL truncates longer names."""
SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
RESERVED_PREFIX: Final = "pg_"
WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
}
OWN: Final = ("schema", "notify", "poll_seconds")
DEFAULT_POLL_SECONDS: Final = 0.2
LEAST_POLL_SECONDS = 0.01
MOST_POLL_SECONDS = 60.0
SECRETS: Final = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
JDBC: Final = "ssl"
"""An option that libpq accepts in a URL only: `ssl=true`."""
ENCODING: Final = "UTF8"
MOST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A database, the schema in it, and whether notifications use LISTEN or polling."""

    parameters: tuple[tuple[str, str], ...]
    """The parameters of libpq, with secrets."""
    schema: str = DEFAULT_SCHEMA
    notify: bool = True
    """Whether LISTEN works. Behind a pooler that shares connections it does not, and clients poll instead."""
    poll_seconds: float = DEFAULT_POLL_SECONDS
    """The interval of polling."""

    @property
    def channel(self) -> str:
        """The notification channel of workers and clients: one for each schema of a database. The triggers of the
        migration `contract_wakeup` build the same name."""
        return shortened(f"holdfast_{self.schema}")

    def channel_of_process(self, name: str) -> str:
        """The channel of one process, on which it hears of the instances that it waits for."""
        return shortened(f"holdfast_{self.schema}_{name}")

    def channel_of(self, subject: str) -> str:
        """The channel on which clients of the open contract hear of `subject`: `holdfast_requests`."""
        return shortened(f"{self.schema}_{subject}")

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        """The URL without secrets."""
        own = {"schema": self.schema, **({} if self.notify else {"notify": "false"})}
        return self._url(own)

    @property
    def libpq_url(self) -> str:
        """The URL without secrets and without Holdfast's own options, for programs of PostgreSQL."""
        return self._url({})

    def _url(self, own: Mapping[str, str]) -> str:
        given = dict(self.parameters)
        user = given.pop("user", "")
        database = given.pop("dbname", "")
        hosts = _hosts(given.pop("host", ""), given.pop("port", ""))
        shown = {name: value for name, value in given.items() if name not in SECRETS}
        options = urlencode({**shown, **own}, safe="/")
        return f"postgresql://{user}{'@' if user else ''}{hosts}/{database}{'?' if options else ''}{options}"


def shortened(name: str) -> str:
    """`name`, or for one that PostgreSQL would truncate, its beginning with a hash."""
    if len(name) <= MOST_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MOST_NAME_BYTES - len(digest) - 1]}_{digest}"


def parse(url: str) -> Address:
    """Parse a URL; a `ValueError` names the part that is wrong."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"the URL of a PostgreSQL store begins with postgresql://, and this one with {scheme[:20]!r}")
    place, secrets = _without_user(rest)
    place, _, query = place.partition("?")
    if "@" in place:
        raise ValueError("the user or password in the URL has an @, / or : that must be written %40, %2F or %3A")
    own, foreign = _sorted_out(query)
    secrets.update({name: _decoded(name, foreign.pop(name)) for name in SECRETS if name in foreign})
    rest = "&".join(f"{name}={value}" for name, value in foreign.items())
    try:
        given = conninfo_to_dict(f"postgresql://{place}{'?' if rest else ''}{rest}")
    except psycopg.ProgrammingError as error:
        raise ValueError(f"the URL of the PostgreSQL store: {str(error).strip()}") from None
    known = {**{name: str(value) for name, value in given.items()}, **secrets}
    _check_ports(known.get("port", ""))
    _check_encoding(known.get("client_encoding", ENCODING))
    return Address(
        parameters=tuple(sorted(known.items())),
        schema=_schema(own.get("schema", DEFAULT_SCHEMA)),
        notify=_truth("notify", own.get("notify", "true")),
        poll_seconds=_seconds("poll_seconds", own.get("poll_seconds", str(DEFAULT_POLL_SECONDS))),
    )


def _without_user(rest: str) -> tuple[str, dict[str, str]]:
    """Remove the user and the password as libpq does: before the first @ that no / precedes."""
    found = re.match(r"([^@/]*)@", rest)
    if found is None:
        return rest, {}
    user, _, password = found[1].partition(":")
    given = {"user": _decoded("user", user), "password": _decoded("password", password)}
    return rest[found.end() :], {name: value for name, value in given.items() if value}


def _decoded(name: str, text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"the {name} in the URL has a % that does not begin two hexadecimal digits: write it %25")
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"the {name} in the URL is no UTF-8 when its % are decoded") from None
    if "\0" in decoded:
        raise ValueError(f"the {name} in the URL has a NUL byte")
    return decoded


def _sorted_out(query: str) -> tuple[dict[str, str], dict[str, str]]:
    """Holdfast's own options, decoded, and the others as they are written."""
    known = {*OWN, JDBC, *_names_of_libpq()}
    own: dict[str, str] = {}
    foreign: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, separator, value = part.partition("=")
        if name not in known:
            raise ValueError(f"{name!r} is no option of a PostgreSQL store{_meant(name, known)}")
        if not separator:
            raise ValueError(f"the option {name} has no value: write {name}=...")
        options = own if name in OWN else foreign
        if name in options:
            raise ValueError(f"the option {name} is given twice")
        options[name] = _decoded(name, value) if name in OWN else value
    return own, foreign


def _names_of_libpq() -> Iterable[str]:
    return (option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults())


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f": did you mean {near[0]}?" if near else f": Holdfast's own are {', '.join(OWN)}, the others are libpq's"


def _schema(name: str) -> str:
    if not SCHEMA_NAME.fullmatch(name) or len(name) > MOST_NAME_BYTES:
        raise ValueError(
            f"schema={name!r}: a schema's name is made of a-z, 0-9 and _, begins with no digit, "
            f"and has {MOST_NAME_BYTES} characters at most"
        )
    if name.startswith(RESERVED_PREFIX) or name == "information_schema":
        raise ValueError(f"schema={name!r}: this name is PostgreSQL's own")
    return name


def _truth(name: str, word: str) -> bool:
    if word.lower() not in WORDS:
        raise ValueError(f"{name}={word!r}: it is true or false")
    return WORDS[word.lower()]


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is no number of seconds") from None
    if not LEAST_POLL_SECONDS <= seconds <= MOST_POLL_SECONDS:
        raise ValueError(f"{name}={text!r}: it is from {LEAST_POLL_SECONDS} to {MOST_POLL_SECONDS:g} seconds")
    return seconds


def _check_ports(ports: str) -> None:
    """An invalid port is not shown: it may be a password whose host is missing."""
    for port in ports.split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= MOST_PORT):
            raise ValueError(f"the port in the URL is no number from 1 to {MOST_PORT}")


def _check_encoding(name: str) -> None:
    """In other encodings some texts cannot be sent, and in some a byte of a letter looks like a quote or backslash."""
    if re.sub(r"[^a-z0-9]", "", name.lower()) != ENCODING.lower():
        raise ValueError(f"client_encoding={name!r}: Holdfast sends {ENCODING}; leave it out")


def _hosts(hosts: str, ports: str) -> str:
    """The hosts as in a URL; the path of a socket's folder is encoded."""
    names = hosts.split(",")
    numbers = ports.split(",")
    if len(numbers) == 1:
        numbers *= len(names)
    pairs = zip(names, numbers, strict=False)
    return ",".join(_encoded(host) + (f":{port}" if port else "") for host, port in pairs)


def _encoded(host: str) -> str:
    return f"[{host}]" if ":" in host else host.replace("/", "%2F")
