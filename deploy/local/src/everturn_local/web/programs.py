"""Runs one of the web client's tools to its end; its processes never outlive the call."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from everturn.core.errors import EverturnError
from everturn_local.processes import KILLED_LIMIT_S, kill_group
from everturn_local.settings import load_environment
from everturn_local.web.node import Node

SHOWN_CHARS: Final = 4_000
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024


class ProgramFailed(EverturnError):
    """A tool of the web client failed."""


async def run_program(
    node: Node, arguments: Sequence[str | Path], *, folder: Path, limit_s: float, env: Mapping[str, str]
) -> str:
    """Run a program and return its output. `arguments` begin with a script for Node; `env` is added to our own
    environment.

    Raises ProgramFailed with the end of its output.
    """
    process = await asyncio.create_subprocess_exec(
        node.program,
        *arguments,
        cwd=folder,
        env={**load_environment(), **env, **_build_path(node)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            output = await _read_output(process.stdout)
            code = await process.wait()
    except TimeoutError as error:
        raise ProgramFailed(f"{_name(arguments)} did not end within {limit_s:g} s.") from error
    finally:
        kill_group(process.pid)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILLED_LIMIT_S)
    if code != 0:
        raise ProgramFailed(f"{_name(arguments)} ended with {code}:\n{output[-SHOWN_CHARS:].strip()}")
    return output


def _build_path(node: Node) -> dict[str, str]:
    """Variables for tools: they start each other by the name `node`, must not prompt (CI), and print no colours."""
    present = load_environment().get("PATH", os.defpath)
    return {"PATH": f"{node.program.parent}{os.pathsep}{present}", "CI": "true", "NO_COLOR": "1"}


async def _read_output(output: asyncio.StreamReader | None) -> str:
    """Read all of the output, so that the program never blocks; keep the end."""
    kept = b""
    while output is not None and (part := await output.read(65_536)):
        kept = (kept + part)[-MAX_OUTPUT_BYTES:]
    return kept.decode(errors="replace")


def _name(arguments: Sequence[str | Path]) -> str:
    script = Path(arguments[0]).stem.removesuffix("-cli")
    return " ".join([script, *(str(word) for word in arguments[1:3])])
