"""Bundles from git: keeps the newest content of each repository that the configuration file names in a folder."""

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import structlog
from pydantic import model_validator

from chat_proc.bundles.bundle import MAX_BYTES, MAX_FILES, NO_CONTENT, SKIPPED, read_folder
from chat_proc.bundles.manifest import BadBundle, BundleProps
from chat_proc.git import (
    GitRef,
    GitRules,
    Repository,
    RepositoryFolder,
    RepositoryUrl,
    TokenReference,
    fetch_commit,
    resolve_commit,
)
from everturn.core.cancellation import acquire_in_thread, end_tasks
from everturn.core.errors import Invalid, Unavailable
from everturn.core.loops import guarded
from everturn.core.metrics import BUNDLE_FETCHES
from everturn.core.refs import check_path
from everturn.git import GitCommit, RepositoryRefused, TreeEntry

_log = structlog.get_logger(__name__)

MAX_REPOSITORIES: Final = 50
FETCHES: Final = 2
"""Repositories that are checked or fetched at the same time."""
UPDATE_TIMEOUT_S: Final = 300.0
"""Limit for checking a repository and fetching it."""
FIRST_FETCH_S: Final = 20.0
"""How long a starting worker waits for its repositories. After that, bundles begin with the version in the registry."""
MAX_DOCUMENTS_BYTES: Final = 512 * 1024 * 1024
"""Of all files in the folder `knowledge` together."""
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
MAX_DOCUMENTS: Final = 5_000
_DOCUMENTS: Final = "knowledge/"


class BundleTable(BundleProps):
    """`bundles.<id>` of the configuration file: properties that override those of the bundle, and its repository if it
    comes from git."""

    git: RepositoryUrl = ""
    ref: GitRef = ""
    folder: RepositoryFolder = ""
    token: TokenReference = ""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if not self.git and (self.ref or self.folder or self.token):
            raise ValueError("ref, folder and token belong to a bundle from git. Set git too")
        if self.token and not self.git.startswith("https:"):
            raise ValueError("token belongs to a repository with an https:// address")
        return self


@dataclass(frozen=True, slots=True)
class Fetched:
    """`folder` is a link to the newest content, which leads nowhere until there is some. `error` says why newer content
    can't be fetched or used."""

    folder: Path
    error: str = ""


@dataclass(frozen=True, slots=True)
class FetchPauses:
    """Seconds between two checks of a repository. After a failure it is `failed_s`, twice as long after each further
    one, and at most `max_s`."""

    usual_s: float = 60.0
    failed_s: float = 15.0
    max_s: float = 900.0

    def choose(self, failures: int) -> float:
        """The pause after so many failures in a row, up to a quarter longer or shorter."""
        pause_s = min(self.max_s, self.failed_s * 2 ** min(failures - 1, 20)) if failures else self.usual_s
        return pause_s * (0.75 + random.random() / 2)  # noqa: S311 - it only spreads the checks of workers


class BundleRepositories:
    """All repositories of a worker."""

    def __init__(self, pollers: Mapping[str, "_RepositoryPoller"]) -> None:
        self._pollers = pollers

    def list(self) -> Mapping[str, Fetched]:
        """What there is of each bundle from git."""
        return {bundle_id: poller.fetched for bundle_id, poller in self._pollers.items()}

    async def wait_fetched(self) -> None:
        """Wait until each repository was checked once, at most FIRST_FETCH_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_FETCH_S):
                for poller in self._pollers.values():
                    await poller.has_checked.wait()


@asynccontextmanager
async def open_repositories(
    tables: Mapping[str, BundleTable], rules: GitRules, *, pauses: FetchPauses | None = None
) -> AsyncGenerator[BundleRepositories]:
    """Poll the repositories of these tables while it is open. Raises BadBundle if there are too many."""
    chosen = {bundle_id: table for bundle_id, table in tables.items() if table.git}
    if len(chosen) > MAX_REPOSITORIES:
        raise BadBundle(f"{len(chosen)} bundles come from git; {MAX_REPOSITORIES} are allowed.")
    slots = asyncio.Semaphore(FETCHES)
    root = Path(await acquire_in_thread(partial(tempfile.mkdtemp, prefix="everturn-bundles-"), os.rmdir))
    pollers = {
        bundle_id: _RepositoryPoller(bundle_id, table, root, rules, slots, pauses or FetchPauses())
        for bundle_id, table in chosen.items()
    }
    tasks = [asyncio.create_task(poller.run(), name="bundle from git") for poller in pollers.values()]
    try:
        yield BundleRepositories(pollers)
    finally:
        await end_tasks(*tasks)
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


class _RepositoryPoller:
    """Keeps one bundle up to date."""

    def __init__(
        self,
        bundle_id: str,
        table: BundleTable,
        root: Path,
        rules: GitRules,
        slots: asyncio.Semaphore,
        pauses: FetchPauses,
    ) -> None:
        self.fetched = Fetched(root / bundle_id)
        self.has_checked = asyncio.Event()
        self._bundle_id = bundle_id
        self._repository = Repository(table.git, table.ref, table.token, bundle_id)
        self._folder = table.folder
        self._rules = rules
        self._slots = slots
        self._pauses = pauses
        self._commit = ""
        self._versions: list[Path] = []
        """The folders that were fetched, the newest last. The one before may still be read."""
        self._refused: tuple[str, str] = ("", "")
        """A commit that can't be used, and why: it is not fetched again."""

    async def run(self) -> None:
        """Run until cancelled."""
        failures = 0
        while True:
            error = "It could not be fetched. The log of the worker has the details."
            with guarded("bundle_fetch", health=None, bundle_id=self._bundle_id):
                error = await self._try_update()
            failures = failures + 1 if error else 0
            self.fetched = replace(self.fetched, error=error)
            self.has_checked.set()
            await asyncio.sleep(self._pauses.choose(failures))

    async def _try_update(self) -> str:
        """Fetch what is new. Returns why that failed, empty if it didn't."""
        if self._repository.is_pinned and self._commit:
            return ""
        outcome = "failed"
        try:
            async with self._slots, asyncio.timeout(UPDATE_TIMEOUT_S):
                outcome = await self._update()
        except TimeoutError:
            return f"{self._repository.url} could not be fetched in {UPDATE_TIMEOUT_S:.0f} s."
        except (Invalid, Unavailable) as error:
            return f"{self._repository.url} could not be fetched: {error.detail or error}"
        except OSError as error:
            return f"{self._repository.url} could not be stored: {error.strerror}."
        finally:
            BUNDLE_FETCHES.labels(outcome).inc()
        return self._refused[1] if outcome == "refused" else ""

    async def _update(self) -> str:
        """Check the repository, and fetch its newest commit. Returns the outcome."""
        commit = await resolve_commit(self._repository, self._rules)
        if commit == self._commit:
            self._refused = ("", "")
            return "unchanged"
        if commit == self._refused[0]:
            return "refused"
        began_s = time.monotonic()
        create = partial(tempfile.mkdtemp, prefix=".", dir=self.fetched.folder.parent)
        version = Path(await acquire_in_thread(create, os.rmdir))
        # Messages about a bundle name its folder.
        target = version / self._bundle_id
        try:
            async with fetch_commit(self._repository, commit, self._rules) as found:
                files = await _save(found, self._folder, target)
            await asyncio.to_thread(self._check, target)
            await asyncio.to_thread(self._serve, target)
        except (BadBundle, RepositoryRefused) as error:
            self._refused = commit, f"{self._repository.url} can't be used at the commit {commit[:12]}: {error.detail}"
            return "refused"
        finally:
            if version not in self._versions:
                await asyncio.to_thread(shutil.rmtree, version, ignore_errors=True)
        self._commit, self._refused = commit, ("", "")
        seconds = round(time.monotonic() - began_s, 1)
        _log.info("Fetched a bundle", bundle_id=self._bundle_id, commit=commit[:12], files=files, seconds=seconds)
        return "fetched"

    def _check(self, target: Path) -> None:
        """Raise BadBundle unless the folder has this bundle."""
        bundle_id = read_folder(target).id
        if bundle_id != self._bundle_id:
            raise BadBundle(
                f"It has the bundle {bundle_id}. Write the table of the configuration as bundles.{bundle_id}."
            )

    def _serve(self, target: Path) -> None:
        """Let the link lead to these files, from one moment to the next."""
        link = target.with_name(".link")
        link.symlink_to(target)
        link.replace(self.fetched.folder)
        self._versions.append(target.parent)
        for old in self._versions[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        del self._versions[:-2]


async def _save(commit: GitCommit, folder: str, target: Path) -> int:
    """Write the files of a bundle below a new folder. Returns how many. Raises BadBundle, RepositoryRefused,
    GitUnavailable, OSError."""
    entries = await commit.list_entries([folder] if folder else [])
    chosen = await asyncio.to_thread(_choose, entries, f"{folder}/" if folder else "")
    for path, entry in chosen:
        await asyncio.to_thread(_write, target, path, await commit.read(entry))
    return len(chosen)


def _choose(entries: Iterable[TreeEntry], prefix: str) -> list[tuple[str, TreeEntry]]:
    """The files that are part of the bundle or of its knowledge, with their paths in it. Raises BadBundle."""
    chosen: list[tuple[str, TreeEntry]] = []
    documents = _Limit("documents in the folder knowledge", MAX_DOCUMENTS, MAX_DOCUMENTS_BYTES)
    others = _Limit("files", MAX_FILES, MAX_BYTES)
    for entry in entries:
        path = entry.path.removeprefix(prefix)
        parts = path.split("/")
        is_document = path.startswith(_DOCUMENTS)
        if any(_is_skipped(part) for part in parts) or (parts[0] in NO_CONTENT and not is_document):
            continue
        if is_document and (entry.kind != "file" or entry.size > MAX_DOCUMENT_BYTES):
            continue
        if entry.kind != "file":
            raise BadBundle(f"{_show(path)} is a {entry.kind}. A bundle from git can have only files.")
        try:
            check_path(path)
        except Invalid as error:
            raise BadBundle(f"{_show(path)} is not a usable name for a file.") from error
        (documents if is_document else others).add(entry.size)
        chosen.append((path, entry))
    if not chosen:
        raise BadBundle(f"It has no files in the folder {prefix}." if prefix else "It has no files.")
    return chosen


def _is_skipped(part: str) -> bool:
    """Hidden files and folders are no part of a bundle; `.` and `..` are refused as names."""
    return part in SKIPPED or (part.startswith(".") and part not in (".", ".."))


class _Limit:
    """Counts files and bytes. Raises BadBundle above the limits."""

    def __init__(self, what: str, files: int, size: int) -> None:
        self._what, self._max_files, self._max_bytes = what, files, size
        self._files = self._bytes = 0

    def add(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > self._max_files or self._bytes > self._max_bytes:
            mebibytes = self._max_bytes // 2**20
            raise BadBundle(
                f"There are more than {self._max_files} {self._what}, or they have more than {mebibytes} MiB in total."
            )


def _write(target: Path, path: str, data: bytes) -> None:
    """Write a new file. The names were checked, and nothing below `target` is a link."""
    file = target / path
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(data)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadBundle(f"{_show(path)} has the name of another file.") from error


def _show(path: str) -> str:
    return f"{path[:200]!a}"
