"""`python -m chat_proc` runs one worker until SIGTERM; with `battery` it runs the escape battery on its launchers, with
`models` it checks or lists the models that it would use, with `bundle` it makes, checks or tests a bundle, with
`verify-receipt` it verifies the receipt of a run."""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from pydantic import ValidationError

from chat_proc.bootstrap import choose_execution, open_worker
from chat_proc.bounds import BOUNDS, Bounds
from chat_proc.bundle_commands.command import parse_arguments as parse_bundle_arguments
from chat_proc.bundle_commands.command import run_bundle
from chat_proc.model_check.command import parse_arguments, print_models, run_check
from chat_proc.model_choice import choose_checked_model, choose_models
from chat_proc.sandbox.receipt_command import parse_receipt_arguments, run_verification
from chat_proc.selftest.command import run_command
from chat_proc.settings import ExecutionSettings, ModelSettings, WorkerSettings, load_config
from everturn.confinement.fork import hide_process
from everturn.core.errors import EverturnError
from everturn.core.logging import Redactor, configure_logging
from everturn.core.settings import explain_errors, load_secrets

STOPPED = 130
"""The exit status of a command that Ctrl-C ended, as shells report it."""


async def run(settings: WorkerSettings, bounds: Bounds) -> None:
    """Run one worker until drained."""

    def report_ready() -> None:
        if settings.ready_fd is not None:
            os.write(settings.ready_fd, readiness.line().encode() + b"\n")
            os.close(settings.ready_fd)

    async with open_worker(settings, bounds=bounds) as (worker, readiness):
        # A collection of everything that is loaded by now takes 50 to 100 ms, in which no turn goes on.
        gc.collect()
        gc.freeze()
        await worker.run(report_ready)


def parse_battery_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of `python -m chat_proc battery`."""
    parser = argparse.ArgumentParser(prog="chat_proc battery", description="Try to escape from the sandboxes.")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each group")
    parser.add_argument("--table", type=Path, help="Markdown file to write the results to")
    return parser.parse_args(arguments)


async def run_models(given: argparse.Namespace) -> int:
    """Run a command of `models`. It needs no server but those of the models."""
    settings = ModelSettings()
    config = load_config(settings.config)
    if given.action == "list":
        print_models(await choose_models(settings, config), settings, config)
        return 0
    choice, model = await choose_checked_model(settings, config, given.name)
    return await run_check(choice, model, settings, config, as_json=given.as_json)


def main(arguments: Sequence[str], *, bounds: Bounds = BOUNDS) -> int:
    """Return the exit status; 2 means that a setting is invalid."""
    refused = "chat-proc can't start"
    try:
        if list(arguments[:1]) == ["verify-receipt"]:
            refused = "verify-receipt"
            return run_verification(parse_receipt_arguments(arguments[1:]))
        load_secrets()
        if list(arguments[:1]) == ["models"]:
            refused = "models"
            given = parse_arguments(arguments[1:])
            configure_logging("error", "json")
            try:
                return asyncio.run(run_models(given))
            except KeyboardInterrupt:
                sys.stderr.write("Interrupted.\n")
                return STOPPED
        if list(arguments[:1]) == ["bundle"]:
            refused = "bundle"
            configure_logging("error", "json")
            try:
                return run_bundle(parse_bundle_arguments(arguments[1:]))
            except KeyboardInterrupt:
                sys.stderr.write("Interrupted.\n")
                return STOPPED
        if list(arguments[:1]) == ["battery"]:
            configure_logging("error", "json")
            choice = choose_execution(ExecutionSettings())
            given = parse_battery_arguments(arguments[1:])
            return asyncio.run(run_command(choice, as_json=given.json, table=given.table))
        settings = WorkerSettings()  # pyright: ignore[reportCallIssue] the environment gives the arguments
        configure_logging(settings.log_level, settings.log_format, Redactor(settings.secrets))
        # Processes of our own user read pages and pictures: neither they nor programs may find our passwords in /proc.
        hide_process()
        uvloop.run(run(settings, bounds))
    except ValidationError as error:
        sys.stderr.writelines(f"{refused}: {line}\n" for line in explain_errors(error))
        return 2
    except EverturnError as error:
        sys.stderr.write(f"{refused}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
