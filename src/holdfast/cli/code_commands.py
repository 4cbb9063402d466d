"""The commands that compare instances with code, with their arguments, options and help texts."""

from typing import Final

from holdfast.cli.declarations import APPLICATIONS, JSON, STORE, WHOLE, WORKFLOW, CliCommand, files, option

CODE_COMMANDS: Final = (
    CliCommand(
        "replay",
        "code_checks:replay",
        "Check before a deploy that the code of APP fits the instances of a store.",
        APPLICATIONS,
        WORKFLOW,
        option(
            "--closed",
            metavar="N",
            type=int,
            default=20,
            help="The newest closed instances of each workflow.",
        ),
        option(
            "--export",
            metavar="DIR",
            shell_complete=files,
            help="Write the histories that do not fit into files for holdfast.testing.Replayer, with their values.",
        ),
        STORE,
        JSON,
        details="Every open instance is replayed: its history is compared with the steps that the code takes, and its "
        "stored inputs are decoded as the types in the code. The first difference is printed once for all instances "
        "that have it. Nothing is changed, no activity runs, and a role that may only read suffices. The exit code is "
        "0 if all instances fit and 1 if one does not.",
        examples="holdfast replay shop.py --store 'postgresql://reader@db/shop'",
    ),
    CliCommand(
        "patches",
        "code_checks:patches",
        "Count the open instances on each branch of hf.patched, and tell which calls can be removed.",
        APPLICATIONS,
        WORKFLOW,
        STORE,
        JSON,
        details="Every open instance is replayed on the code of APP. A patch is safe to remove if all of them replay "
        "on code in which its call is replaced by the new branch. Check again after each removal. A name that the code "
        "computes is listed once an instance has reached it.",
        examples="holdfast patches shop.py --workflow checkout",
    ),
    CliCommand(
        "blocked",
        "blocked:blocked",
        "List the blocked instances by reason, with what to do about them.",
        WORKFLOW,
        WHOLE,
        STORE,
        JSON,
        details="Instances of one workflow whose reasons differ only in ids and numbers are one group. At most 10,000 "
        "blocked instances are read.",
    ),
)
