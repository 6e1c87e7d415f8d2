"""Which folders a Python of a virtual environment needs to be shown to run inside a sandbox."""

import asyncio
import json
import os
from pathlib import Path
from typing import Final, cast

from everturn.ports.sandbox import SandboxUnavailable
from everturn.wire.execution import Interpreter

_ASK_TIMEOUT_S: Final = 20.0
_QUESTION: Final = """
import importlib.util, json, sys
print(json.dumps([sys.prefix, sys.base_prefix, importlib.util.find_spec("executor") is not None]))
"""
_PARTS: Final = ("bin", "lib", "lib64", "lib32")


async def load_interpreter(python: Path) -> Interpreter:
    """Ask the interpreter where its own files are. Raises SandboxUnavailable if it does not run or has no executor."""
    place = Path.cwd() / python  # not resolved: a virtual environment is known by the path of its link
    try:
        prefix, base_prefix, has_executor = await _ask(place)
    except OSError as error:
        raise SandboxUnavailable(f"There is no sandbox environment at {place}.", "make setup") from error
    if not has_executor:
        raise SandboxUnavailable(f"The executor is not installed in the sandbox environment {prefix}.", "make setup")
    return Interpreter(str(place), find_roots(place, prefix, base_prefix))


def find_roots(python: Path, prefix: str, base_prefix: str) -> tuple[str, ...]:
    """The environment's folder, and of each place its interpreter really comes from the parts that Python reads."""
    bases = {base_prefix, os.path.realpath(base_prefix)}
    link = python
    while link.is_symlink():
        link = link.parent / link.readlink()
        bases.add(os.path.abspath(link.parent.parent))
    bases.add(str(python.resolve().parent.parent))
    parts = {os.path.join(base, part) for base in bases - {prefix} for part in _PARTS}
    return (prefix, *sorted(part for part in parts if os.path.isdir(part)))


async def _ask(python: Path) -> tuple[str, str, bool]:
    process = await asyncio.create_subprocess_exec(
        str(python), "-I", "-c", _QUESTION, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(_ASK_TIMEOUT_S):
        answer, errors = await process.communicate()
    if process.returncode != 0:
        raise SandboxUnavailable(f"The sandbox's Python {python} does not run: {errors.decode()[-200:].strip()}")
    return cast("tuple[str, str, bool]", tuple(json.loads(answer)))
