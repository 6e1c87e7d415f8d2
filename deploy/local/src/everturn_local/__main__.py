"""The command `python -m everturn_local`: `run`, `up` and the other COMMANDS."""

import argparse
import asyncio
import sys

from everturn.core.errors import EverturnError
from everturn_local.bundle import choose_shipped, run_bundle
from everturn_local.compose.commands import READY_LIMIT_S, run_down, run_logs, run_up
from everturn_local.compose.images import SERVICES, run_images
from everturn_local.doctor import run_doctor
from everturn_local.home import Home, load_left, remove_home, run_lock
from everturn_local.migrations import run_migrate
from everturn_local.models import run_models, run_worker_command
from everturn_local.operate import run_operate
from everturn_local.run import run_platform, show_progress
from everturn_local.settings import (
    LocalSettings,
    load_compose_environment,
    load_compose_settings,
    load_run_environment,
    load_settings,
)
from everturn_local.web.choice import open_web_client

PASSED_ON = ("operate", "models", "bundle", "verify-receipt")
"""Commands whose arguments are for the ingress or the worker, even if they begin with a dash."""
COMMANDS = ("run", "images", "up", "down", "logs", "doctor", "migrate", *PASSED_ON, "web", "clean")
MAX_PRINTED = 20
"""Limit for the names of files that `clean` did not delete."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="everturn_local", description="Everturn on one machine.")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--yes", action="store_true", help="clean, down: skip the confirmation")
    parser.add_argument("--volumes", action="store_true", help="down: delete all data too")
    parser.add_argument("--limit-s", type=float, default=READY_LIMIT_S, help="up: seconds until it must be ready")
    parser.add_argument("--services", default="", help="logs: the services to show")
    parser.add_argument("--images", choices=tuple(SERVICES), default="all", help="images: which ones to build")
    parser.add_argument("--only", choices=("build", "check"), default="build", help="web: what to do")
    chosen = parser.parse_args(arguments[:1] if arguments[:1] and arguments[0] in PASSED_ON else arguments)
    try:
        settings = load_settings()
        match chosen.command:
            case "run":
                environment = load_run_environment()
                return asyncio.run(run_platform(settings, {**environment, **choose_shipped(settings, environment)}))
            case "images":
                return run_images(load_compose_environment(), only=chosen.images, report=show_progress)
            case "up" | "down" | "logs":
                return run_compose(chosen)
            case "doctor":
                return run_doctor(settings, environment=load_run_environment())
            case "migrate":
                print(run_migrate(settings))
                return 0
            case "operate":
                return run_operate(settings, arguments[1:], environment=load_run_environment())
            case "models":
                return run_models(arguments[1:], environment=load_run_environment())
            case "verify-receipt":
                return run_worker_command(arguments, load_run_environment())
            case "bundle":
                return run_bundle(arguments[1:], settings, environment=load_run_environment())
            case "web":
                return asyncio.run(run_web(chosen.only))
            case _:
                return run_clean(settings, yes=chosen.yes)
    except EverturnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_compose(chosen: argparse.Namespace) -> int:
    """Manage the platform as containers. Raises EverturnError."""
    environment, compose = load_compose_environment(), load_compose_settings()
    match chosen.command:
        case "up":
            return run_up(compose, environment, show_progress, limit_s=chosen.limit_s)
        case "down":
            return run_down(compose, environment, volumes=chosen.volumes, yes=chosen.yes)
        case _:
            return run_logs(compose, environment, chosen.services)


async def run_web(what: str) -> int:
    """Build or check the web client if its sources changed. Raises EverturnError, also without Node."""
    client = open_web_client(show_progress)
    if what == "check":
        await client.check()
    else:
        print(await client.save_build())
    return 0


def run_clean(settings: LocalSettings, *, yes: bool) -> int:
    """Delete all local state after a question. Exit status 1 when anything is left; its names are printed."""
    home = Home(settings.everturn_home.absolute())
    if not home.root.exists():
        return 0
    if not yes and not _agrees(f"Delete all conversations and files in {home.root}? [y/N] "):
        print("kept")
        return 1
    with run_lock(home):
        remove_home(home)
    left = load_left(home)
    if not left:
        print(f"deleted {home.root}")
        return 0
    print(f"deleted Everturn's files in {home.root}; these could not be deleted or belong to others:", file=sys.stderr)
    for name in left[:MAX_PRINTED]:
        print(f"  {name}", file=sys.stderr)
    if len(left) > MAX_PRINTED:
        print(f"  and {len(left) - MAX_PRINTED} more", file=sys.stderr)
    return 1


def _agrees(question: str) -> bool:
    """Ask a yes/no question; False at the end of input."""
    try:
        return input(question).strip().lower() == "y"
    except EOFError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
