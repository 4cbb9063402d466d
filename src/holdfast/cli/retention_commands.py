"""The commands that delete instances and read archives, with their arguments, options and help texts."""

from typing import Final

from holdfast.cli.declarations import ID, JSON, STORE, Argument, CliCommand, files, option, words

RETENTION_COMMANDS: Final = (
    CliCommand(
        "delete",
        "retention:delete",
        "Delete a closed instance with all its descendants.",
        ID,
        option("--yes", "-y", is_flag=True, help="Do not ask."),
        STORE,
        JSON,
        details="Every row of the family is deleted in one commit. An open member, a child whose root exists, and the "
        "attribute keep are refused, and nothing is deleted. Without a terminal --yes is needed.",
        examples="holdfast delete order-42 --yes",
    ),
    CliCommand(
        "prune",
        "retention:prune",
        "Delete the closed instances that a rule selects.",
        Argument("filter", "A test of the root, such as 'a.customer = \"acme\"'.", metavar="[FILTER]", required=False),
        option("--older-than", metavar="AGE", help="Ended longer ago than this, such as 30d or 12h."),
        option(
            "--state",
            metavar="STATE",
            multiple=True,
            shell_complete=words("COMPLETED", "FAILED", "CANCELLED", "TERMINATED"),
            help="Only families whose root ended so. May be repeated.",
        ),
        option("--workflow", "-w", metavar="NAME", help="Only families whose root is of this workflow."),
        option("--keep-last", metavar="N", type=int, help="Keep the newest N of each workflow and state."),
        option(
            "--archive",
            metavar="FILE|DIR",
            help="Write each instance there, and sync it, before it is deleted.",
        ),
        option("--dry-run", is_flag=True, help="Count what would be deleted, and delete nothing."),
        option("--yes", "-y", is_flag=True, help="Do not ask."),
        STORE,
        JSON,
        details="A root is deleted with all its descendants, when every one of them is closed and the youngest end is "
        "older than --older-than. The command lists what it would delete, and asks; without a terminal --yes is "
        "needed. Workers continue meanwhile. After an interruption the same command continues. Families with the "
        "attribute keep are kept.",
        examples="holdfast prune --older-than 30d --dry-run\n"
        "holdfast prune --older-than 90d --state FAILED --archive old.jsonl.gz",
    ),
    CliCommand(
        "archive",
        "retention:archive",
        "List the instances of an archive, or show one of them as JSON.",
        Argument("file", "The archive that prune wrote, or its directory.", metavar="FILE", shell_complete=files),
        Argument("instance_id", "The id of an instance.", metavar="[ID]", required=False),
        JSON,
        details="Every slice is checked against the manifest before it is shown.",
    ),
)
