"""The Python environments of bundles: one for each content of requirements.txt, installed once.

An environment has what the bundle asks for, and of Everturn only the SDK with pydantic: code of a bundle can't import
the platform. Only wheels are installed, so that no code of a package runs during the installation.
"""

import asyncio
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import venv
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from chat_proc.bundles.host.processes import KeptProcess, ProcessLimits
from chat_proc.bundles.host.section import MIB
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor

_log = structlog.get_logger(__name__)

REQUIREMENTS: Final = "requirements.txt"
INSTALL_TIMEOUT_S: Final = 300.0
MAX_ENVIRONMENT_MIB: Final = 1024
MAX_ENVIRONMENTS: Final = 20
"""Environments that are kept; the ones not used for the longest time are removed before another one is installed."""
MAX_REQUIREMENTS_BYTES: Final = 64 * 1024
_SHOWN_LINES: Final = 15
_SIZE_CHECK_S: Final = 1.0
_LOCK_CHECK_S: Final = 0.2
_DONE: Final = "installed"
_SDK_MODULES: Final = (
    "everturn_sdk",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
)
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._, -]*\])?(?: *[=<>!~;].*| *)")
"""A name with extras, versions and a marker; without options, addresses or paths."""


class BadRequirements(Invalid):
    """The libraries of the bundle can't be installed."""


class Environments:
    """`folder` keeps the environments; processes of other users read them. `pip_settings` are variables that pip
    reads, such as the address of its index; `redactor` hides their secrets in pip's output."""

    def __init__(
        self,
        folder: Path,
        *,
        pip_settings: Mapping[str, str] | None = None,
        redactor: Redactor | None = None,
        timeout_s: float = INSTALL_TIMEOUT_S,
        max_mib: int = MAX_ENVIRONMENT_MIB,
    ) -> None:
        self._folder = folder
        self._pip_settings = dict(pip_settings or {})
        self._redactor = redactor or Redactor()
        self._timeout_s = timeout_s
        self._max_mib = max_mib

    async def prepare(self, requirements: bytes) -> Path:
        """The Python of the environment for this content of requirements.txt, installed if it is missing. Raises
        BadRequirements with the last lines that pip has written."""
        check_requirements(requirements)
        name = _name_environment(requirements)
        await asyncio.to_thread(self._open_folder)
        environment = self._folder / name
        python = environment / "bin" / "python"
        async with _lock(self._folder / f"{name}.lock"):
            if not (environment / _DONE).exists():
                await self._install(environment, requirements)
            await asyncio.to_thread(os.utime, environment / _DONE)
        return python

    def has(self, requirements: bytes) -> bool:
        """Whether they are installed."""
        return (self._folder / _name_environment(requirements) / _DONE).exists()

    def _open_folder(self) -> None:
        """Code of this folder is executed, so nobody else may have made it, nor write to it."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        about = self._folder.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise BadRequirements(f"The folder {self._folder} of their environments belongs to another user.")

    async def _install(self, environment: Path, requirements: bytes) -> None:
        await asyncio.to_thread(self._make_room)
        await asyncio.to_thread(_create, environment)
        try:
            if requirements.strip():
                await self._run_pip(environment, requirements)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, environment, ignore_errors=True)
            raise
        (environment / _DONE).touch()

    def _make_room(self) -> None:
        kept = sorted(self._folder.glob(f"*/{_DONE}"), key=lambda done: done.stat().st_mtime)
        for done in kept[: max(0, len(kept) - MAX_ENVIRONMENTS + 1)]:
            # The marker first: an environment that is only partly removed is installed again.
            done.unlink(missing_ok=True)
            shutil.rmtree(done.parent, ignore_errors=True)

    async def _run_pip(self, environment: Path, requirements: bytes) -> None:
        listed = environment / REQUIREMENTS
        await asyncio.to_thread(listed.write_bytes, requirements)
        options = "--no-input --disable-pip-version-check --no-cache-dir --no-compile --only-binary :all: --quiet"
        pip = [sys.executable, "-I", "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
        own = {"PATH": os.defpath, "HOME": str(environment), "TMPDIR": str(environment), "LANG": "C.UTF-8"}
        lines: list[str] = []
        process = KeptProcess(
            [*pip, *options.split(), "-r", str(listed)],
            folder=environment,
            environment={**self._pip_settings, **own},
            limits=ProcessLimits(memory_bytes=4096 * MIB, file_bytes=self._max_mib * MIB),
            on_line=lambda line: _keep_last(lines, line),
        )
        problem = ""
        async with process:
            try:
                async with asyncio.timeout(self._timeout_s):
                    if not await self._wait(process, environment):
                        problem = f"They take more than {self._max_mib} MiB."
            except TimeoutError:
                problem = f"They were not installed within {self._timeout_s:g} s."
        if process.status != 0 or problem:
            said = self._redactor.redact("\n".join(lines))
            raise BadRequirements(f"{problem or f'pip ended with status {process.status}.'}\n{said}".strip())

    async def _wait(self, process: KeptProcess, environment: Path) -> bool:
        """Wait for the end; false as soon as the environment is too large."""
        while True:
            ended = await process.wait(_SIZE_CHECK_S)
            if await asyncio.to_thread(_measure_bytes, environment) > self._max_mib * MIB:
                return False
            if ended:
                return True


def _name_environment(requirements: bytes) -> str:
    return hashlib.sha256(f"{sys.version}\0{sys.prefix}\0".encode() + requirements).hexdigest()[:32]


def check_requirements(requirements: bytes) -> None:
    """Raise BadRequirements unless each line names a package: options, addresses and paths are not allowed."""
    if len(requirements) > MAX_REQUIREMENTS_BYTES:
        raise BadRequirements(f"{REQUIREMENTS} has {len(requirements)} bytes; at most {MAX_REQUIREMENTS_BYTES}.")
    try:
        text = requirements.decode()
    except UnicodeDecodeError as error:
        raise BadRequirements(f"{REQUIREMENTS} is not UTF-8.") from error
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        wanted = line.partition(" #")[0].strip()
        named = " ".join(word for word in wanted.split() if not word.startswith("--hash="))
        is_option = any(word.startswith("-") for word in named.split())
        if named and not named.startswith("#") and (is_option or not _REQUIREMENT.fullmatch(named)):
            raise BadRequirements(
                f"{REQUIREMENTS}, line {number}: {wanted[:200]!r} is not allowed. Name packages such as `httpx>=0.28`."
            )


def find_shared_folders(python: Path) -> tuple[Path, ...]:
    """What processes of other users must be able to read to run this Python of an environment."""
    environment = python.parents[1]
    linked = [link.resolve() for link in (environment / "everturn").iterdir()]
    folders = {link.parent for link in linked}
    return environment, Path(sys.base_prefix).resolve(), *sorted(folders)


def _create(environment: Path) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    shared = environment / "everturn"
    shared.mkdir()
    for name in _SDK_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise Invalid(f"The module {name}, which bundles need, is not installed.")
        origin = Path(spec.origin)
        source = origin.parent if spec.submodule_search_locations is not None else origin
        (shared / source.name).symlink_to(source)
    # Behind the environment's own libraries, which may include another pydantic.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / version / "site-packages" / "everturn.pth").write_text(f"{shared}\n")


def _measure_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                # pip removes temporary files meanwhile.
                continue
    return total


def _keep_last(lines: list[str], line: str) -> None:
    lines.append(line)
    del lines[:-_SHOWN_LINES]


@asynccontextmanager
async def _lock(path: Path) -> AsyncGenerator[None]:
    """Other workers of this machine share the folder."""
    descriptor = await asyncio.to_thread(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):  # noqa: ASYNC110 - another process releases it
            await asyncio.sleep(_LOCK_CHECK_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
