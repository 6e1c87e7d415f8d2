"""A reader's terminal: one bash that keeps folder, variables and functions from block to block."""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path

from documents.blocks import BadDocument, Block

LIMIT_S = 120.0
ENDED = "---ended---"


class Shell:
    """Use as an async context manager. It begins in `folder`; `scratch` is for what this class writes. A block that
    fails ends it, as it ends what the page promised."""

    def __init__(self, folder: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder, env
        self._typed = scratch / "typed.sh"

    async def __aenter__(self) -> "Shell":
        pipe = asyncio.subprocess.PIPE
        self._bash = await asyncio.create_subprocess_exec(
            "bash",
            "--norc",
            "-eo",
            "pipefail",
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            env=dict(self._env),
            start_new_session=True,
            limit=2**22,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        # Of a bash that has ended what it left behind may live on.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        await self._bash.wait()

    async def play(self, block: Block) -> str:
        """Its output, both streams. Raises AssertionError with the output if the block fails or takes too long."""
        self._typed.write_text(build_input(block))
        assert self._bash.stdin is not None
        self._bash.stdin.write(f". {shlex.quote(str(self._typed))} < /dev/null; echo; echo {ENDED}\n".encode())
        printed: list[str] = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._read(printed)
        except (TimeoutError, EOFError) as error:
            raise AssertionError(f"Line {block.line} {error or 'took too long'}: {''.join(printed)}") from error
        return "".join(printed).removesuffix("\n")

    async def _read(self, printed: list[str]) -> None:
        assert self._bash.stdout is not None
        while line := (await self._bash.stdout.readline()).decode():
            if line == f"{ENDED}\n":
                return
            printed.append(line)
        raise EOFError("failed")


def build_input(block: Block) -> str:
    """What a reader does with it: type it, or save it. Raises BadDocument for what can't be typed into a shell."""
    if block.file is not None:
        return f"cat > {shlex.quote(block.file)} <<'{ENDED}'\n{block.text}{ENDED}\n"
    if block.language != "bash":
        raise BadDocument(f"Line {block.line}: nobody runs this {block.language} block; say file=name, and run it.")
    return block.text
