"""`everturn bundle`: makes, checks and tests the bundle of an author, and runs the platform with it. `make run` has the
bundles that come with Everturn."""

import argparse
import asyncio
import shlex
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from everturn.bundles.starters import is_incomplete
from everturn.core.settings import load_toml
from everturn_local.home import Home
from everturn_local.models import run_worker_command
from everturn_local.run import run_platform, show_progress
from everturn_local.settings import REPOSITORY, LocalSettings
from everturn_local.supervision.specs import SANDBOX_PYTHON

SHIPPED: Final = REPOSITORY / "bundles"


def run_bundle(arguments: Sequence[str], settings: LocalSettings, *, environment: Mapping[str, str]) -> int:
    """Run a command and return its exit status; all but `run` are commands of the worker."""
    if list(arguments[:1]) != ["run"]:
        # Tests can run programs.
        environment = {"SANDBOX_PYTHON": str(SANDBOX_PYTHON), **environment}
        return run_worker_command(["bundle", *(arguments or ["--help"])], environment)
    parser = argparse.ArgumentParser(
        prog="everturn bundle run",
        description="Run the platform on this machine, as `make run` does, with only this bundle. Changes to its files "
        "are loaded while it runs.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="default: the current folder")
    folder = parser.parse_args(arguments[1:]).folder.resolve()
    if status := run_worker_command(["bundle", "check", str(folder)], environment):
        return status
    manifest = tomllib.loads((folder / "bundle.toml").read_text(encoding="utf-8-sig"))
    with tempfile.TemporaryDirectory(prefix="everturn-bundle-") as private:
        chosen = choose_bundle(folder, manifest["id"], Path(private), environment)
        example = build_example(manifest.get("starters", ()))
        return asyncio.run(run_platform(settings, {**environment, **chosen}, examples=(example,)))


def build_example(starters: Sequence[str]) -> str:
    """The command that sends the first complete starter, or a message that fits every agent if there is none."""
    starter = next((each for each in starters if not is_incomplete(each)), "What can you do?")
    return f"everturn chat {shlex.quote(starter)}"


def choose_bundle(folder: Path, bundle_id: str, private: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a checked bundle the only one, and the default one unless the operator's configuration
    file, which was checked too, sets another. `private` is an empty folder that must exist as long as the platform
    runs."""
    bundles = private / "bundles"
    bundles.mkdir()
    (bundles / bundle_id).symlink_to(folder, target_is_directory=True)
    default = bundle_id
    if config := environment.get("EVERTURN_CONFIG"):
        default = load_toml(Path(config)).get("ai", {}).get("default_bundle", bundle_id)
    why = "" if default == bundle_id else f", as EVERTURN_CONFIG says; choose {bundle_id} for a conversation"
    show_progress(
        f"{default} answers by default{why}; changes in {folder} are loaded a few seconds after you save them"
    )
    return {"BUNDLES_DIR": str(bundles), "EVERTURN_DEFAULT_BUNDLE": bundle_id}


def choose_shipped(settings: LocalSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that offer the bundles of the repository; none if BUNDLES_DIR is set, even to nothing, or if the
    operator has a folder of bundles."""
    own = Home(settings.everturn_home.absolute()).bundles
    if "BUNDLES_DIR" in environment or own.is_dir():
        return {}
    show_progress(f"agents to choose from: those of {SHIPPED}; a folder {own} replaces them")
    return {"BUNDLES_DIR": str(SHIPPED)}
