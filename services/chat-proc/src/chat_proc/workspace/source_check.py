"""Tells whether a written Python or JSON text can be read as what it is."""

import asyncio
import contextlib
import json
import sys

MAX_CHECKED_BYTES = 512 * 1024
LIMIT_S = 5.0
_PARSE = """
import ast, sys
try:
    ast.parse(sys.stdin.buffer.read(), "file")
except SyntaxError as error:
    print(f"line {error.lineno}: {error.msg}")
except Exception as error:
    print(type(error).__name__, error)
"""
"""Run in a process of its own: a text that is nested deeply enough can bring a parser down."""


async def find_syntax_problem(name: str, data: bytes) -> str | None:
    """What is wrong with a .py or .json file, in one line; None when nothing is, or for other and very large files."""
    if len(data) > MAX_CHECKED_BYTES:
        return None
    if name.endswith(".py"):
        return await _check_python(data)
    return _check_json(data) if name.endswith(".json") else None


def _check_json(data: bytes) -> str | None:
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


async def _check_python(data: bytes) -> str | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _PARSE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate(data)
    except TimeoutError:
        return f"it could not be parsed within {LIMIT_S:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        return "it is nested too deeply to be parsed"
    return said.decode("utf-8", "replace").strip()[:300] or None
