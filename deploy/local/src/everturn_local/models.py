"""`make models`: checks or lists the models that `make run` would use. Nothing has to run for it."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

EXAMPLE: Final = 'make models DO="check local:qwen3-8b"'


def run_models(arguments: Sequence[str], *, environment: Mapping[str, str]) -> int:
    """Run a command of the worker and return its exit status. Without arguments it lists the commands."""
    status = run_worker_command(["models", *(arguments or ["--help"])], environment)
    if not arguments:
        print(f"With make, pass a command in DO, for example: {EXAMPLE}", file=sys.stderr)
    return status


def run_worker_command(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command of `python -m chat_proc` with the variables of the local platform; returns its exit status."""
    argv = [sys.executable, "-P", "-m", "chat_proc", *arguments]
    process = subprocess.Popen(argv, env={"EVERTURN_MODE": "development", **environment})
    while process.poll() is None:
        # Ctrl-C reaches the command, too: it prints what it has found and ends.
        with suppress(KeyboardInterrupt):
            process.wait()
    return process.returncode
