"""The SQL of the two group roles of the open contract: clients that start workflows, and executors (C13).

No process of Holdfast runs it: an administrator does, and grants the roles to the logins of clients. A role may insert
the columns that clients write, and read the views of its side. It may not read a table, so a client cannot see the
claims, payloads or exec ids of others. The functions are plain SQL with the rights of their caller; without a role they
could be called and would fail, so the right to call them is taken from PUBLIC.
"""

from typing import Final, NamedTuple

from holdfast.storage.postgres.address import shortened


class ClientRole(NamedTuple):
    """The rights of one kind of client."""

    suffix: str
    """Of its name, behind that of the schema."""
    table: str
    columns: tuple[str, ...]
    """The columns that it inserts; the others are the engine's, or have a default."""
    views: tuple[str, ...]
    functions: tuple[str, ...]
    """With the types of their parameters."""


STARTER: Final = ClientRole(
    suffix="starter",
    table="requests",
    columns=(
        *("request_id", "kind", "workflow", "instance_id", "event_name", "input", "policy", "start_at_ms"),
        *("deadline_after_ms", "manual", "source"),
    ),
    views=("request_status", "workflows"),
    functions=("start_workflow(text, text, text, text)", "raise_event(text, text, text, text)"),
)
EXECUTOR: Final = ClientRole(
    suffix="executor",
    table="activity_events",
    columns=(
        *("event_id", "activity_exec_id", "claim", "transition", "sequence", "payload", "error", "source", "sent_at"),
    ),
    views=("open_activities", "activity_event_status"),
    functions=("report(text, text, text, text, text, text, bigint)",),
)


def role_name(schema: str, role: ClientRole) -> str:
    """The name of a role: `holdfast_starter`."""
    return shortened(f"{schema}_{role.suffix}")


def printed_roles(schema: str) -> str:
    """The script for both roles. It may be run again."""
    starter = role_name(schema, STARTER)
    executor = role_name(schema, EXECUTOR)
    lines = [
        f"-- Holdfast, schema {schema}: group roles for clients. Run it after the migrations, as the owner of the",
        "-- tables, who may create roles. Then grant the roles to the logins of clients:",
        f"--   GRANT {starter} TO shop_web;",
        f"--   GRANT {executor} TO gpu_box;",
        "BEGIN;",
    ]
    for role in (STARTER, EXECUTOR):
        lines.extend(_statements(schema, role))
    return "\n".join([*lines, "COMMIT;"])


def _statements(schema: str, role: ClientRole) -> list[str]:
    name = role_name(schema, role)
    functions = ", ".join(f'"{schema}".{function}' for function in role.functions)
    views = ", ".join(f'"{schema}".{view}' for view in role.views)
    return [
        f'DO $$ BEGIN CREATE ROLE "{name}" NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;',
        f'GRANT USAGE ON SCHEMA "{schema}" TO "{name}";',
        f'GRANT INSERT ({", ".join(role.columns)}) ON "{schema}".{role.table} TO "{name}";',
        f'GRANT SELECT ON {views} TO "{name}";',
        f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC;",
        f'GRANT EXECUTE ON FUNCTION {functions} TO "{name}";',
    ]
