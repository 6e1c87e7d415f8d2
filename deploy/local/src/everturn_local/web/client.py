"""The web client's packages, build, checks and tests: each runs only if its sources changed since the last time."""

import asyncio
import fcntl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from everturn_local.settings import REPOSITORY
from everturn_local.web.node import Node
from everturn_local.web.programs import ProgramFailed, run_program
from everturn_local.web.stamps import Stamps, build_packages_digest, build_sources_digest

WEB: Final = REPOSITORY / "clients" / "web"
INSTALL_LIMIT_S: Final = 300.0
BUILD_LIMIT_S: Final = 180.0
CHECK_LIMIT_S: Final = 240.0
TEST_LIMIT_S: Final = 480.0
TURN_LIMIT_S: Final = 600.0
"""How long to wait for another process that works on the client."""
POLL_S: Final = 0.2
# Install scripts of packages don't run: none of our tools needs them.
INSTALL: Final = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000")
ESLINT: Final = "node_modules/eslint/bin/eslint.js"
TSC: Final = "node_modules/typescript/bin/tsc"
VITEST: Final = "node_modules/vitest/vitest.mjs"

Report = Callable[[str], None]


class WebClient:
    """The web client in `web`, built with `node`. All methods raise ProgramFailed."""

    def __init__(self, web: Path, node: Node, report: Report) -> None:
        self._web = web
        self.node = node
        self._report = report
        self._stamps = Stamps(web)

    async def save_build(self) -> Path:
        """Build the client if necessary; returns its folder."""
        async with self._alone():
            return await self._save_build()

    async def check(self) -> None:
        """Check lint and types."""
        async with self._alone():
            await self._check()

    async def test(self, *names: str, env: Mapping[str, str] | None = None) -> str:
        """Run the tests and return their output; `names` select some, `env` is for the tests."""
        async with self._alone():
            await self._save_packages()
        return await self._run(VITEST, "run", *names, limit_s=TEST_LIMIT_S, env=env)

    async def _save_build(self) -> Path:
        dist = self._web / "dist"
        digest = build_sources_digest(self._web)
        if self._stamps.is_done("build", digest) and (dist / "index.html").is_file():
            return dist
        await self._save_packages()
        self._report(f"building the web client with the Node {self.node.why}")
        self._stamps.forget("build")
        await self._run(self.node.npm, "run", "build", limit_s=BUILD_LIMIT_S)
        self._stamps.save("build", digest)
        return dist

    async def _check(self) -> None:
        digest = build_sources_digest(self._web)
        if self._stamps.is_done("check", digest):
            return
        await self._save_packages()
        done = await asyncio.gather(
            self._run(ESLINT, ".", limit_s=CHECK_LIMIT_S),
            self._run(TSC, "--noEmit", limit_s=CHECK_LIMIT_S),
            return_exceptions=True,
        )
        failed = [each for each in done if isinstance(each, BaseException)]
        if failed:
            reasons = [each.detail if isinstance(each, ProgramFailed) else str(each) for each in failed]
            raise ProgramFailed("\n".join(reasons)) from failed[0]
        self._stamps.save("check", digest)

    async def _save_packages(self) -> None:
        """Install the packages of the lock file."""
        digest = build_packages_digest(self._web)
        if self._stamps.is_done("packages", digest):
            return
        self._report("installing the web client's packages (takes about a minute the first time)")
        await self._run(self.node.npm, *INSTALL, limit_s=INSTALL_LIMIT_S)
        self._stamps.save("packages", digest)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Lock packages and build across all processes; the kernel releases the lock of a dead process."""
        deadline = time.monotonic() + TURN_LIMIT_S
        with (self._web / "package.json").open("rb") as file:
            while not _try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise ProgramFailed(f"Another process has been working on {self._web} for {TURN_LIMIT_S:g} s.")
                await asyncio.sleep(POLL_S)
            yield

    async def _run(self, *arguments: str | Path, limit_s: float, env: Mapping[str, str] | None = None) -> str:
        return await run_program(self.node, arguments, folder=self._web, limit_s=limit_s, env=env or {})


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
