"""What of this machine a Python of a virtual environment needs to be shown to run inside a sandbox."""

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
has_executor = importlib.util.find_spec("executor") is not None
print(json.dumps([sys.prefix, sys.base_prefix, "python%d.%d" % sys.version_info[:2], has_executor]))
"""
_LIBRARIES: Final = ("lib", "lib64", "lib32")
_PACKAGES: Final = ("site-packages", "dist-packages")
_MAX_SHARED: Final = 300
"""Shared libraries beside the standard library. Where there are more, as with conda, their whole folder is shown."""


async def load_interpreter(python: Path) -> Interpreter:
    """Ask the interpreter where its own files are. Raises SandboxUnavailable if it does not run or has no executor."""
    place = Path.cwd() / python  # not resolved: a virtual environment is known by the path of its link
    try:
        prefix, base_prefix, name, has_executor = await _ask(place)
    except OSError as error:
        raise SandboxUnavailable(f"There is no sandbox environment at {place}.", "make setup") from error
    if not has_executor:
        raise SandboxUnavailable(f"The executor is not installed in the sandbox environment {prefix}.", "make setup")
    return find_parts(place, prefix, base_prefix, name)


def find_parts(python: Path, prefix: str, base_prefix: str, name: str) -> Interpreter:
    """The environment's folder, and of the interpreter it was made from the program, standard and shared libraries.

    Packages that were installed for that interpreter are hidden: they are other projects'. `name` is `python3.11`.
    """
    programs = [str(python), str(python.resolve())]
    bases = {base_prefix, os.path.realpath(base_prefix)}
    link = python
    while link.is_symlink():
        link = link.parent / link.readlink()
        programs.append(os.path.abspath(link))
        bases.add(os.path.abspath(link.parent.parent))
    bases.add(str(python.resolve().parent.parent))
    parts = {program for program in programs if not Path(program).is_relative_to(prefix)}
    hidden: set[str] = set()
    for library in (Path(base, part) for base in bases - {prefix} for part in _LIBRARIES):
        standard = library / name
        if standard.is_dir():
            parts.add(str(standard))
            hidden |= {str(folder) for folder in map(standard.joinpath, _PACKAGES) if folder.is_dir()}
        shared = {str(file) for file in library.glob("*.so*") if file.is_file()}
        parts |= {str(library)} if len(shared) > _MAX_SHARED else shared
    return Interpreter(str(python), (prefix, *sorted(parts)), tuple(sorted(hidden)))


async def _ask(python: Path) -> tuple[str, str, str, bool]:
    process = await asyncio.create_subprocess_exec(
        str(python), "-I", "-c", _QUESTION, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(_ASK_TIMEOUT_S):
        answer, errors = await process.communicate()
    if process.returncode != 0:
        raise SandboxUnavailable(f"The sandbox's Python {python} does not run: {errors.decode()[-200:].strip()}")
    return cast("tuple[str, str, str, bool]", tuple(json.loads(answer)))
