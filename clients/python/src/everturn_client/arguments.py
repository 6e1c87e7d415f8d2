"""The command line of `everturn`: its commands and options."""

import argparse
import json
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from everturn.core.settings import ADDRESS_PATTERN, split_address
from everturn_client.errors import check_utf8
from everturn_client.settings import DEFAULT_URL, ClientSettings

EXIT_CODES = (
    "Exit codes: 0 success, 1 the turn or request failed or was cancelled, 2 usage error, 3 server unreachable, "
    "4 the answer was cut off or reached a limit, 130 interrupted, 141 the output pipe was closed."
)

WAIT_S = 60.0
"""Longer than an ingress takes to restart."""
MAX_WAIT_S = 86_400.0


MAX_PAYLOAD_DEPTH = 64
"""As the server's."""
LAST_WORDS: Final = {"signal": "text", "answer": "reason"}
"""Commands with a word that can be left out, behind words that can't."""


def parse_arguments(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse; accepts the last word of a command also behind its options, as newer versions of argparse do."""
    found, left = parser.parse_known_args(argv)
    name = LAST_WORDS.get(found.command or "")
    if name and len(left) == 1 and not left[0].startswith("-") and not getattr(found, name):
        setattr(found, name, left[0])
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return found


def build_parser(settings: ClientSettings) -> argparse.ArgumentParser:
    """The parser; its defaults come from the settings."""
    parser = argparse.ArgumentParser(prog="everturn", description="Chat with Everturn agents.", epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"everturn {version('everturn-client')}")
    _add_shared(parser, settings)
    # They are also accepted after the command, but without defaults, which would override values given before it.
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _add_shared(shared, settings, is_repeated=True)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_chat(
        commands.add_parser("chat", parents=[shared], help="send a message and watch the answer", epilog=EXIT_CODES)
    )

    _add_signal(
        commands.add_parser("signal", parents=[shared], help="send a signal to a running turn, or an external event")
    )

    answer = commands.add_parser("answer", parents=[shared], help="approve or deny a tool call that needs approval")
    answer.add_argument("approval", metavar="APPROVAL", help="the approval's id (appr_…), which chat and show print")
    answer.add_argument("kind", choices=["approve", "deny"])
    answer.add_argument("reason", nargs="?", default="", help="your reason, which the agent sees")
    answer.add_argument("--conversation", metavar="ID", help="its conversation (default: the last one you used)")

    _add_conversations(partial(commands.add_parser, parents=[shared]))

    agents = commands.add_parser("agents", parents=[shared], help="list the agents that you can chat with")
    agents.description = "List the agents that you can chat with; * marks the one that answers if you choose none."
    agents.add_argument("--json", action="store_true", dest="as_json", help="print the agents as JSON")

    connections = commands.add_parser("connections", parents=[shared], help="list or delete your connected accounts")
    connections.description = "List your accounts at MCP servers that agents can use, or delete one."
    connections.add_argument("--delete", type=_place, dest="place", metavar="AGENT/SERVER", help="delete this one")

    commands.add_parser("doctor", parents=[shared], help="diagnose a server and suggest fixes")
    _add_canary(commands.add_parser("canary", parents=[shared], help="send a message each minute and time its answer"))

    bundle = commands.add_parser(
        "bundle", help="make, check, test or run an agent of your own (only where the platform is installed)"
    )
    bundle.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="`new NAME`, or `check`, `test` or `run` with a folder; `everturn bundle` alone explains them",
    )

    models = commands.add_parser("models", help="check or list models (only where the platform is installed)")
    models.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="`check [NAME] [--json]` or `list`; `everturn models check --help` says more",
    )

    verify = commands.add_parser(
        "verify-receipt", help="verify the receipt of a run (only where the platform is installed)"
    )
    verify.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="FILE --key PUBLIC",
        help="the receipt and a file of public keys; --files FOLDER also compares files with it",
    )

    download = commands.add_parser("download", parents=[shared], help="download a file")
    download.add_argument("artifact", metavar="ARTIFACT", help="the file's id (art_…)")
    download.add_argument(
        "-o", "--output", type=Path, default=Path(), help="file or folder to write to (default: the current folder)"
    )

    feedback = commands.add_parser("feedback", parents=[shared], help="rate a turn")
    feedback.add_argument("turn", metavar="TURN", help="the turn's id (turn_…)")
    feedback.add_argument("reaction", choices=["ok", "not_ok", "neutral"])
    feedback.add_argument("--text", default="", help="a comment")
    feedback.add_argument("--conversation", metavar="ID", help="its conversation (default: the last one you used)")
    return parser


def _add_conversations(add_command: Callable[..., argparse.ArgumentParser]) -> None:
    listing = add_command("list", help="list your conversations, latest first")
    listing.add_argument("--limit", type=_positive, default=20, help="maximum number of conversations (default: 20)")
    listing.add_argument(
        "--title", metavar="TEXT", default="", help="show only conversations with this text in their title"
    )
    listing.add_argument("--archived", action="store_true", help="list archived conversations instead")

    search = add_command("search", help="search the messages of your conversations")
    search.add_argument("query", metavar="QUERY", help="what to look for")
    search.add_argument("--limit", type=_positive, default=10, help="maximum number of results, up to 50 (default: 10)")
    search.add_argument("--conversation", metavar="ID", help="search only this conversation")

    show = add_command("show", help="print the most recent turns of a conversation, or all of them")
    show.add_argument("conversation", metavar="ID", help="the conversation's id (conv_…), which list prints")
    show.add_argument("--all", action="store_true", dest="all_turns", help="print all turns")
    show.add_argument("--json", action="store_true", dest="as_json", help="print the conversation's state as JSON")

    rename = add_command("rename", help="rename a conversation")
    rename.add_argument("conversation", metavar="ID", help="the conversation's id")
    rename.add_argument("title", metavar="TITLE", help="its new title")

    for name, text in (
        ("archive", "archive conversations"),
        ("unarchive", "move conversations out of the archive"),
        ("delete", "delete conversations with all their messages and files"),
    ):
        command = add_command(name, help=text)
        command.add_argument("conversations", metavar="ID", nargs="+", help="a conversation's id")
        if name == "delete":
            command.add_argument("--yes", action="store_true", help="delete without confirmation")

    fork = add_command("fork", help="copy a conversation up to the end of a turn")
    fork.add_argument("conversation", metavar="ID", help="the conversation's id")
    fork.add_argument("--turn", metavar="TURN", help="the last turn to copy (default: the last one that has ended)")
    fork.add_argument("--title", help="the title of the copy (default: the original's)")

    export = add_command("export", help="save a conversation as JSON Lines with hashes")
    export.add_argument("conversation", metavar="ID", help="the conversation's id")
    export.add_argument(
        "-o", "--output", type=Path, default=Path(), help="file or folder to write to (default: the current folder)"
    )


def _add_chat(chat: argparse.ArgumentParser) -> None:
    chat.add_argument(
        "text", nargs="?", help="the message; if omitted, opens a prompt in a terminal, otherwise sends standard input"
    )
    chat.add_argument("--file", type=Path, action="append", default=[], dest="files", help="attach a file (repeatable)")
    chat.add_argument(
        "--agent", metavar="ID", help="start the conversation with this agent, which `everturn agents` lists"
    )
    place = chat.add_mutually_exclusive_group()
    place.add_argument("--conversation", metavar="ID", help="continue this conversation")
    place.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="continue the last conversation you used with this command on this machine",
    )
    chat.add_argument("--json", action="store_true", dest="as_json", help="print the events as JSON lines")
    chat.add_argument("--download", type=Path, metavar="DIR", help="download the turn's files into this folder")
    chat.add_argument("--no-thinking", action="store_true", help="don't show the model's thinking")


def _add_signal(signal: argparse.ArgumentParser) -> None:
    signal.add_argument("kind", choices=["followup", "steer", "cancel", "event"])
    signal.add_argument("text", nargs="?", default="", help="the text; a steer without text stops the turn")
    signal.add_argument("--conversation", metavar="ID", help="the conversation (default: the last one you used)")
    signal.add_argument(
        "--file", type=Path, action="append", default=[], dest="files", help="attach a file (repeatable)"
    )
    signal.add_argument("--turn", metavar="ID", help="send the signal only if this turn is still running")
    signal.add_argument(
        "--event-kind", metavar="NAME", default="alert", help="kind of event, such as form or wizard (default: alert)"
    )
    signal.add_argument(
        "--payload",
        metavar="JSON",
        type=_json_object,
        default={},
        help="event data as a JSON object, in addition to the text",
    )
    signal.add_argument(
        "--record-only", action="store_true", help="only record the event; it does not start or extend a turn"
    )
    signal.add_argument(
        "--credit",
        type=int,
        choices=range(4),
        default=0,
        help="rounds that the event adds to a running turn; ignored with --record-only (default: 0)",
    )


def _add_canary(canary: argparse.ArgumentParser) -> None:
    canary.description = (
        "Send the same message again and again, and print how long each stage of its turn took. Deletes its "
        "conversations. Exit code 1 with --once if the turn did not end well in time."
    )
    canary.add_argument("--agent", default="canary", metavar="ID", help="the agent to ask (default: %(default)s)")
    canary.add_argument("--text", default="Are you there?", help="the message (default: %(default)s)")
    canary.add_argument(
        "--every", type=_period, default=60.0, metavar="SECONDS", help="between two messages (default: %(default)g)"
    )
    canary.add_argument(
        "--limit", type=_period, default=30.0, metavar="SECONDS", help="for one answer (default: %(default)g)"
    )
    canary.add_argument("--once", action="store_true", help="send one message, and exit")
    canary.add_argument("--listen", type=_address, metavar="HOST:PORT", help="serve metrics for Prometheus at /metrics")


def _add_shared(parser: argparse.ArgumentParser, settings: ClientSettings, *, is_repeated: bool = False) -> None:
    # argparse reads percent signs in a help text as placeholders.
    shown_url = settings.url.replace("%", "%%")
    parser.add_argument("--url", type=_server_url, help=f"the server's URL, or set EVERTURN_URL (default: {shown_url})")
    parser.add_argument("--token", help="bearer token or API key, or set EVERTURN_TOKEN")
    parser.add_argument("--user", metavar="NAME", help="your user name, for servers in development mode")
    parser.add_argument("--tenant", help="your tenant (default: default)")
    parser.add_argument("--project", help="your project (default: default)")
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        help=f"seconds to keep trying to reach the server (default: {WAIT_S:g})",
    )
    if not is_repeated:
        parser.set_defaults(url=settings.url, token=settings.token, tenant="default", project="default", wait=WAIT_S)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError("must be a whole number of at least 1")
    return number


def _place(text: str) -> str:
    if not all(text.rpartition("/")[::2]):
        raise argparse.ArgumentTypeError("write it as the list shows it, such as desk/mail")
    return text


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < MAX_WAIT_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0 to {MAX_WAIT_S:g}")
    return number


def _period(text: str) -> float:
    if (number := _seconds(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1 second")
    return number


def _address(text: str) -> tuple[str, int]:
    if not text or not re.fullmatch(ADDRESS_PATTERN, text):
        raise argparse.ArgumentTypeError("must be an address with its port, such as 127.0.0.1:9466")
    return split_address(text)


def _json_object(text: str) -> dict[str, object]:
    try:
        value: object = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or _is_deep(cast(object, value)):
        raise argparse.ArgumentTypeError(
            'must be a JSON object, such as {"city": "Oslo"}, with finite numbers, at most '
            f"{MAX_PAYLOAD_DEPTH} levels deep"
        )
    return cast(dict[str, object], value)


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_PAYLOAD_DEPTH):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += cast(dict[str, object], each).values()
            elif isinstance(each, list):
                inner += cast(list[object], each)
        level = inner
    return any(isinstance(each, dict | list) for each in level)


def _server_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError("the server's URL (--url or EVERTURN_URL) must begin with http:// or https://")
    if not _names_a_host(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no valid host and port; use a URL such as http://127.0.0.1:8080 or http://[::1]:8080"
        )
    return text.rstrip("/")


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_encoding(arguments: argparse.Namespace) -> None:
    """Raise BadInput for a text that is not UTF-8.

    Paths can have any bytes unless they are sent. The token is checked by `Requests`, which does not print it.
    """
    values = [value for name, value in vars(arguments).items() if name != "token"]
    for value in values:
        for each in cast(list[object], value) if isinstance(value, list) else [value]:
            text = json.dumps(each, ensure_ascii=False) if isinstance(each, dict) else each
            if isinstance(text, str):
                check_utf8(text, "The command line", "Check the encoding of your terminal or script.")


def build_command_prefix(program: str, arguments: argparse.Namespace) -> str:
    """Build the command that calls `program` for the same server and user, even if EVERTURN_URL was set for one call
    only.

    A token is never repeated.
    """
    options = [("--url", arguments.url, DEFAULT_URL), ("--user", arguments.user, None)]
    options += [("--tenant", arguments.tenant, "default"), ("--project", arguments.project, "default")]
    chosen = [f"{option} {shlex.quote(value)}" for option, value, usual in options if value != usual]
    return " ".join([shlex.quote(program), *chosen])
