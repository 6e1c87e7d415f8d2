"""The command line of `everturn`: its commands and options."""

import argparse
from pathlib import Path

from everturn_client.settings import ClientSettings

EXIT_CODES = "Exit codes: 0 fine, 1 the turn or request failed or was cancelled, 2 wrong usage, 3 server unreachable."


def build_parser(settings: ClientSettings) -> argparse.ArgumentParser:
    """The parser; its defaults come from the settings."""
    shared = _build_shared(settings)
    parser = argparse.ArgumentParser(prog="everturn", description="Talk with Everturn agents.", epilog=EXIT_CODES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_chat(
        commands.add_parser("chat", parents=[shared], help="send a message and watch the answer", epilog=EXIT_CODES)
    )

    listing = commands.add_parser("conversations", parents=[shared], help="list your conversations")
    listing.add_argument("--limit", type=_positive, default=20, help="how many (20)")

    show = commands.add_parser("show", parents=[shared], help="print a conversation")
    show.add_argument("conversation", metavar="ID", help="a conversation's id")
    show.add_argument("--json", action="store_true", dest="as_json", help="print the state as JSON")

    download = commands.add_parser("download", parents=[shared], help="download a file")
    download.add_argument("artifact", metavar="ARTIFACT", help="the file's id (art_…)")
    download.add_argument("-o", "--output", type=Path, default=Path(), help="file or folder to write to (this folder)")

    feedback = commands.add_parser("feedback", parents=[shared], help="judge a turn")
    feedback.add_argument("turn", metavar="TURN", help="the turn's id (turn_…)")
    feedback.add_argument("reaction", choices=["ok", "not_ok", "neutral"])
    feedback.add_argument("--text", default="", help="what you want to say about it")
    feedback.add_argument("--conversation", metavar="ID", help="its conversation (the last one you talked with)")
    return parser


def _add_chat(chat: argparse.ArgumentParser) -> None:
    chat.add_argument("text", nargs="?", help="the message; without it you get a prompt, or standard input is sent")
    chat.add_argument("--file", type=Path, action="append", default=[], dest="files", help="attach a file (repeatable)")
    place = chat.add_mutually_exclusive_group()
    place.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    place.add_argument("--continue", action="store_true", dest="go_on", help="go on with the last conversation")
    chat.add_argument("--json", action="store_true", dest="as_json", help="print the events as JSON lines")
    chat.add_argument("--download", type=Path, metavar="DIR", help="download the turn's files into this folder")
    chat.add_argument("--no-thinking", action="store_true", help="don't show what the model thinks")


def _build_shared(settings: ClientSettings) -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--url", type=_server_url, default=settings.url, help=f"the server, also by EVERTURN_URL ({settings.url})"
    )
    shared.add_argument("--token", default=settings.token, help="bearer token or API key, also by EVERTURN_TOKEN")
    shared.add_argument("--user", metavar="NAME", help="who you are, for servers in development mode")
    shared.add_argument("--tenant", default="default", help="(default)")
    shared.add_argument("--project", default="default", help="(default)")
    return shared


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _server_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError("a server's URL begins with http:// or https://")
    return text.rstrip("/")


def build_command_prefix(arguments: argparse.Namespace, settings: ClientSettings) -> str:
    """How to call this program again for the same server and user. A token is never repeated."""
    parts = ["everturn"]
    options = [("--url", arguments.url, settings.url), ("--user", arguments.user, None)]
    options += [("--tenant", arguments.tenant, "default"), ("--project", arguments.project, "default")]
    chosen = [f"{option} {value}" for option, value, usual in options if value != usual]
    return " ".join([*parts, *chosen])
