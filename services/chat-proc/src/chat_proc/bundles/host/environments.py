"""The Python environments of bundles: one for each content of requirements.txt, installed once.

An environment has what the bundle asks for, and of Everturn only the SDK with pydantic: code of a bundle can't import
the platform. Only wheels are installed, so that no code of a package runs during the installation. pip reads only what
was checked, and is confined as an author's code is, in case a package finds a way nevertheless.
"""

import ast
import asyncio
import fcntl
import hashlib
import importlib.util
import os
import re
import stat
import sys
import venv
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import structlog

from chat_proc.bundles.host.processes import ProcessLimits, WatchedProcess, claim_uid
from chat_proc.bundles.host.section import MIB
from chat_proc.bundles.host.watchdog import TOO_LARGE, fits, remove_tree
from everturn.core.cancellation import acquire_in_thread
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor

_log = structlog.get_logger(__name__)

REQUIREMENTS: Final = "requirements.txt"
INSTALL_TIMEOUT_S: Final = 300.0
"""For pip, which reads its settings and installs. The time limit for opening a bundle is longer."""
MAX_ENVIRONMENT_MIB: Final = 1024
MAX_ENVIRONMENTS: Final = 20
"""Environments that are kept: before another one is installed, those not used for the longest time are removed, but
none that is in use."""
MAX_REQUIREMENTS_BYTES: Final = 64 * 1024
_KEPT_LINES: Final = 200
"""Of pip's output, until it has ended."""
_SHOWN_LINES: Final = 10
_SHOWN_CHARS: Final = 2_000
"""What is shown of them if it fails: the errors, which can name a dozen packages that exclude each other."""
_LOCK_CHECK_S: Final = 0.2
_DONE: Final = "installed"
_MAX_FAILURE_BYTES: Final = 64 * 1024
SDK_MODULES: Final = (
    "everturn_sdk",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
)
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._, -]*\])?(?: *[=<>!~;][A-Za-z0-9._+!=<>~,;*'\"() -]*| *)"
)
"""A name with extras, versions and a marker; without options, addresses, paths or variables."""
_HASH: Final = re.compile(r"--hash=[a-z0-9]+:[0-9a-f]+")
_SETTING: Final = re.compile(r"(global|install|:env:)\.([a-z0-9-]+)=(.*)")
_INDEXES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_MANY_PROCESSES: Final = 256


class BadRequirements(Invalid):
    """The libraries of the bundle can't be installed."""


class Environments:
    """`folder` keeps the environments; processes of other users read them. `pip_settings` are variables that pip
    reads, such as the address of its index; `redactor` hides their secrets in pip's output. `uids` are users for pip if
    the worker is root."""

    def __init__(
        self,
        folder: Path,
        *,
        pip_settings: Mapping[str, str] | None = None,
        redactor: Redactor | None = None,
        uids: range = range(0),
        timeout_s: float = INSTALL_TIMEOUT_S,
        max_mib: int = MAX_ENVIRONMENT_MIB,
        max_kept: int = MAX_ENVIRONMENTS,
    ) -> None:
        self._folder = folder
        self._pip_settings = dict(pip_settings or {})
        self._redactor = redactor or Redactor()
        self._uids = uids
        self._timeout_s = timeout_s
        self._max_mib = max_mib
        self._max_kept = max_kept

    @asynccontextmanager
    async def use(self, requirements: bytes) -> AsyncGenerator[Path]:
        """The Python of the environment for this content of requirements.txt, installed if it is missing. No worker
        removes it meanwhile. Raises BadRequirements with the errors that pip has written."""
        packages = check_requirements(requirements)
        await asyncio.to_thread(self._open_folder)
        environment = self._folder / _name_environment(packages)
        done = environment / _DONE
        descriptor = await acquire_in_thread(partial(_open_lock, environment), os.close)
        try:
            failed_before = os.fstat(descriptor).st_mtime_ns
            # Users keep their shared lock as long as they use the environment. So the exclusive lock is only tried: the
            # one that gets it installs, and the others wait until they can share it.
            await _lock(descriptor, fcntl.LOCK_SH)
            while not await asyncio.to_thread(done.exists):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                if not _try_lock(descriptor, fcntl.LOCK_EX):
                    await asyncio.sleep(_LOCK_CHECK_S)
                elif not await asyncio.to_thread(done.exists):
                    if os.fstat(descriptor).st_mtime_ns != failed_before:
                        raise BadRequirements(os.pread(descriptor, _MAX_FAILURE_BYTES, 0).decode(errors="replace"))
                    await self._install(environment, packages, descriptor)
                # A lock is lost when it changes its kind, so another worker may come between.
                await _lock(descriptor, fcntl.LOCK_SH)
            await asyncio.to_thread(os.utime, done)
            yield environment / "bin" / "python"
        finally:
            os.close(descriptor)

    def has(self, requirements: bytes) -> bool:
        """Whether they are installed. Raises BadRequirements."""
        return (self._folder / _name_environment(check_requirements(requirements)) / _DONE).exists()

    def _open_folder(self) -> None:
        """Code of this folder is executed, so nobody else may have made it, nor write to it."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        about = self._folder.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise BadRequirements(f"The folder {self._folder} of their environments belongs to another user.")

    async def _install(self, environment: Path, packages: Sequence[str], descriptor: int) -> None:
        """Install under the lock of `descriptor`."""
        # A thread goes on after its caller was cancelled. So all steps that change the environment run one after the
        # other in one thread, and the lock is held by a second descriptor until the last of them has ended.
        steps, held, loop = ThreadPoolExecutor(1), os.dup(descriptor), asyncio.get_running_loop()
        try:
            await loop.run_in_executor(steps, self._make_room)
            await loop.run_in_executor(steps, _create, environment)
            if packages:
                links = await loop.run_in_executor(steps, _find_links, environment)
                async with claim_uid(self._uids) as uid:
                    await self._run_pip(environment, packages, steps, uid)
                if await loop.run_in_executor(steps, _find_links, environment) != links:
                    raise BadRequirements("A package has changed the links of the environment.")
            await loop.run_in_executor(steps, _add_sdk, environment)
        except BaseException as error:
            if isinstance(error, BadRequirements):
                # In the lock file, for workers that wait for this installation: otherwise each would repeat it in vain.
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, error.detail.encode(errors="replace")[:_MAX_FAILURE_BYTES], 0)
            # Shielded, because a second cancellation would take it back while it waits for the thread.
            await asyncio.shield(loop.run_in_executor(steps, remove_tree, str(environment)))
            raise
        finally:
            steps.submit(os.close, held)
            steps.shutdown(wait=False)

    def _make_room(self) -> None:
        """Remove what dead workers have half installed, and environments that nobody uses, until another one can be
        kept."""
        found = (lock.with_suffix("") for lock in self._folder.glob("*.lock"))
        used_s = {environment: _read_use(environment / _DONE) for environment in found if environment.is_dir()}
        excess = sum(map(bool, used_s.values())) - self._max_kept + 1
        for environment in sorted(used_s, key=used_s.__getitem__):
            if used_s[environment] and excess <= 0:
                break
            descriptor = _open_lock(environment)
            try:
                if _try_lock(descriptor, fcntl.LOCK_EX):
                    # The marker first: an environment that is only partly removed is installed again.
                    (environment / _DONE).unlink(missing_ok=True)
                    remove_tree(str(environment))
                    excess -= bool(used_s[environment])
            finally:
                os.close(descriptor)

    async def _run_pip(self, environment: Path, packages: Sequence[str], steps: Executor, uid: int | None) -> None:
        listed, loop = environment / REQUIREMENTS, asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        await loop.run_in_executor(steps, listed.write_text, "".join(f"{package}\n" for package in packages))
        settings = await self._read_settings(environment)
        # Not quiet: then pip leaves out which requirements exclude each other.
        options = "--no-input --disable-pip-version-check --no-cache-dir --no-compile --only-binary :all:"
        problem, lines = "", list[str]()
        if uid is not None:
            await loop.run_in_executor(steps, _hand_over, environment, uid)
        # Its own variables last: it writes no log, and reads no files with settings, which other users may not read.
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_LOG": "", **_build_variables(environment)}
        needed = await asyncio.to_thread(_find_needed, environment, settings)
        process = WatchedProcess(
            [*_build_pip(environment), "install", *options.split(), "--progress-bar", "off", "-r", str(listed)],
            folder=environment,
            environment={**settings, **own},
            limits=ProcessLimits(
                memory_bytes=4096 * MIB,
                file_bytes=self._max_mib * MIB,
                processes=_MANY_PROCESSES,
                disk_bytes=self._max_mib * MIB,
                uid=uid,
            ),
            on_line=lambda line: _keep_last(lines, line),
            redactor=self._redactor,
            shown=needed,
            readable=needed,
            home=environment,
        )
        async with process:
            if not await process.wait(max(0.0, until_s - loop.time())):
                problem = f"They were not installed within {self._timeout_s:g} s."
        if process.status == TOO_LARGE or not await asyncio.to_thread(fits, str(environment), self._max_mib * MIB):
            problem = f"The installed libraries take more than {self._max_mib} MiB, or have too many files."
        if process.status != 0 or problem:
            said = _choose_lines([_name_packages(line, str(listed), packages) for line in lines])
            raise BadRequirements(f"{problem or f'pip ended with status {process.status}.'}\n{said}".strip())
        if uid is not None:
            await loop.run_in_executor(steps, _hand_over, environment, os.geteuid())

    async def _read_settings(self, environment: Path) -> Mapping[str, str]:
        """The variables for pip, with what its configuration files say, for a pip that can't read them."""
        lines: list[str] = []
        process = WatchedProcess(
            [*_build_pip(environment), "config", "list"],
            folder=environment,
            environment={**self._pip_settings, **_build_variables(environment)},
            limits=ProcessLimits(memory_bytes=4096 * MIB),
            on_line=lines.append,
        )
        async with process:
            await process.wait(self._timeout_s)
        if process.status != 0:
            said = self._redactor.redact("\n".join(lines))
            raise BadRequirements(f"The settings of pip can't be read.\n{said}".strip())
        return {**self._pip_settings, **_parse_settings(lines)}


def _build_pip(environment: Path) -> list[str]:
    return [sys.executable, "-I", "-m", "pip", "--python", str(environment / "bin" / "python")]


def _build_variables(environment: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(environment), "TMPDIR": str(environment), "LANG": "C.UTF-8"}


def _parse_settings(lines: Sequence[str]) -> dict[str, str]:
    """Variables from the output of `pip config list`. Raises BadRequirements."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for section, name, value in (match.groups() for match in map(_SETTING.fullmatch, lines) if match):
        try:
            found[section][f"PIP_{name.upper().replace('-', '_')}"] = str(ast.literal_eval(value))
        except (SyntaxError, ValueError) as error:
            raise BadRequirements(f"The setting {name} of pip can't be read.") from error
    # Each overrides the ones before, as in pip.
    return found["global"] | found["install"] | found[":env:"]


def _find_needed(environment: Path, settings: Mapping[str, str]) -> list[Path]:
    """What pip must be able to read: also the files and folders that settings name, such as one of certificates or a
    folder of wheels. An index in a folder names files beside it."""
    found = [environment, Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()]
    for name, value in settings.items():
        for word in value.split():
            path = Path(unquote(word.removeprefix("file://"))) if word.startswith(("/", "file:///")) else None
            if path is not None and path.exists():
                place = path.resolve()
                found.append(place.parent if name in _INDEXES and place.parents[1:] else place)
    return found


def _hand_over(environment: Path, uid: int) -> None:
    """Give all files of an environment to this user, readable for everybody."""
    for folder, folders, files in os.walk(environment):
        for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chown(path, uid, uid, follow_symlinks=False)
                os.chmod(path, 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644)


def _name_environment(packages: Sequence[str]) -> str:
    return hashlib.sha256("\0".join((sys.version, sys.prefix, *packages)).encode()).hexdigest()[:32]


def check_requirements(requirements: bytes) -> list[str]:
    """The packages that it names, each with its versions, marker and hashes in one line. Raises BadRequirements for
    anything else: options, addresses and paths are not allowed."""
    if len(requirements) > MAX_REQUIREMENTS_BYTES:
        raise BadRequirements(f"{REQUIREMENTS} has {len(requirements)} bytes; at most {MAX_REQUIREMENTS_BYTES}.")
    try:
        lines = requirements.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadRequirements(f"{REQUIREMENTS} is not UTF-8.") from error
    packages: list[str] = []
    begun, first = "", 1
    for number, line in enumerate((*lines, ""), 1):
        first = first if begun else number
        # As pip does it: a line that is a comment is not continued.
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            begun += f"{line[:-1]} "
            continue
        words = re.split(r"\s#", f"{begun} {line}", maxsplit=1)[0].split()
        begun = ""
        hashes = [word for word in words if _HASH.fullmatch(word)]
        named = " ".join(word for word in words if word not in hashes)
        is_option = any(word.startswith("-") for word in named.split())
        if words and (is_option or not _REQUIREMENT.fullmatch(named)):
            raise BadRequirements(
                f"{REQUIREMENTS}, line {first}: {' '.join(words)[:200]!r} is not allowed. Name packages such as "
                "`httpx>=0.28`."
            )
        if words:
            packages.append(" ".join([named, *hashes]))
    return packages


def find_shared_folders(python: Path) -> tuple[Path, ...]:
    """What processes of other users must be able to read to run this Python of an environment."""
    environment = python.parents[1]
    linked = [link.resolve() for link in (environment / "everturn").iterdir()]
    folders = {link.parent for link in linked}
    return environment, Path(sys.base_prefix).resolve(), *sorted(folders)


def _create(environment: Path) -> None:
    remove_tree(str(environment))
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)


def _find_links(environment: Path) -> dict[str, str]:
    """The links in an environment and where they lead. Wheels have none."""
    paths = [os.path.join(top, name) for top, folders, files in os.walk(environment) for name in (*folders, *files)]
    return {path: os.readlink(path) for path in paths if os.path.islink(path)}


def _add_sdk(environment: Path) -> None:
    """Link the SDK's modules into the environment, after pip: what a wheel installs through a link would change the
    platform's own files. Raises BadRequirements if a wheel has taken one of the names."""
    shared = environment / "everturn"
    # Behind the environment's own libraries, which may include another pydantic.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    listed = environment / "lib" / version / "site-packages" / "everturn.pth"
    try:
        shared.mkdir()
        for name in SDK_MODULES:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise Invalid(f"The module {name}, which bundles need, is not installed.")
            origin = Path(spec.origin)
            source = origin.parent if spec.submodule_search_locations is not None else origin
            (shared / source.name).symlink_to(source)
        with listed.open("x") as file:
            file.write(f"{shared}\n")
        (environment / _DONE).touch(exist_ok=False)
    except FileExistsError as error:
        raise BadRequirements(f"A package installs {Path(error.filename).name}, a name that Everturn uses.") from error


def _keep_last(lines: list[str], line: str) -> None:
    lines.append(line)
    del lines[:-_KEPT_LINES]


def _name_packages(line: str, listed: str, packages: Sequence[str]) -> str:
    """A line of pip without the path and the line numbers of its list of packages, which the author does not know."""
    for number in map(int, re.findall(rf"-r {re.escape(listed)} \(line (\d{{1,6}})\)", line)):
        if number <= len(packages):
            line = line.replace(f"-r {listed} (line {number})", packages[number - 1])
    return line


def _choose_lines(lines: Sequence[str]) -> str:
    """What an author needs of pip's output: its errors, and why it could not reach an index; otherwise the end."""
    said = [line for line in lines if line.strip()]
    if (first := next((at for at, line in enumerate(said) if line.startswith("ERROR")), None)) is not None:
        tried = [line for line in said[:first] if line.startswith("WARNING: Retrying")]
        said = [*tried[-1:], *said[first:]]
        half = _SHOWN_LINES // 2
        said = said if len(said) <= _SHOWN_LINES else [*said[:half], "...", *said[1 - half :]]
    text = "\n".join(said[-_SHOWN_LINES:])
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS // 2]}\n...\n{text[-_SHOWN_CHARS // 2 :]}"


def _read_use(done: Path) -> float:
    """When an environment was used last; 0 if it is not installed."""
    try:
        return done.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _open_lock(environment: Path) -> int:
    """Other workers of this machine share the folder."""
    return os.open(f"{environment}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _lock(descriptor: int, kind: int) -> None:
    while not _try_lock(descriptor, kind):  # noqa: ASYNC110 - another process releases it
        await asyncio.sleep(_LOCK_CHECK_S)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
