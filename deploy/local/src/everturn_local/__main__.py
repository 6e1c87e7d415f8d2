"""The command `python -m everturn_local run|images|doctor|migrate|operate|web|clean`."""

import argparse
import asyncio
import sys

from everturn.errors import EverturnError
from everturn_local.doctor import run_doctor
from everturn_local.home import Home, load_left, remove_home, run_lock
from everturn_local.images.making import run_images
from everturn_local.migrate import run_migrate
from everturn_local.operate import run_operate
from everturn_local.run import run_platform, show_progress
from everturn_local.settings import LocalSettings, load_run_environment, load_settings
from everturn_local.web.choice import open_web_client

MAX_TOLD = 20
"""Names of what `clean` left that are told."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="everturn_local", description="Everturn on one machine.")
    parser.add_argument("command", choices=("run", "images", "doctor", "migrate", "operate", "web", "clean"))
    parser.add_argument("--yes", action="store_true", help="clean: don't ask")
    parser.add_argument("--base", default="", help="images: the image to stand on")
    parser.add_argument("--only", choices=("build", "check"), default="build", help="web: what to do")
    # What follows `operate` is for the ingress, also where it begins with a dash.
    operating = arguments[:1] == ["operate"]
    chosen = parser.parse_args(arguments[:1] if operating else arguments)
    try:
        settings = load_settings()
        match chosen.command:
            case "run":
                return asyncio.run(run_platform(settings))
            case "images":
                return run_images(settings, base=chosen.base, report=show_progress)
            case "doctor":
                return run_doctor(settings, environment=load_run_environment())
            case "migrate":
                print(run_migrate(settings))
                return 0
            case "operate":
                return run_operate(settings, arguments[1:], environment=load_run_environment())
            case "web":
                return asyncio.run(run_web(chosen.only))
            case _:
                return run_clean(settings, yes=chosen.yes)
    except EverturnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


async def run_web(what: str) -> int:
    """Build or check the web client, where its sources changed. Raises EverturnError, also where there is no Node."""
    client = open_web_client(show_progress)
    if what == "check":
        await client.check()
    else:
        print(await client.save_build())
    return 0


def run_clean(settings: LocalSettings, *, yes: bool) -> int:
    """Delete all local state after a question. The exit status is 1 when anything is left, and which is told."""
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
    print(f"deleted what was Everturn's in {home.root} and could be deleted; these stay:", file=sys.stderr)
    for name in left[:MAX_TOLD]:
        print(f"  {name}", file=sys.stderr)
    if len(left) > MAX_TOLD:
        print(f"  and {len(left) - MAX_TOLD} more", file=sys.stderr)
    return 1


def _agrees(question: str) -> bool:
    """False where nobody can answer."""
    try:
        return input(question).strip().lower() == "y"
    except EOFError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
