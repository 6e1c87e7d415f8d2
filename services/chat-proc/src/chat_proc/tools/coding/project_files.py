"""The files of a project on their way into the sandbox of a coding agent, and what comes back. All that comes back was
written by nobody that is trusted."""

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from everturn.core.errors import Invalid
from everturn.core.refs import check_path
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.history.repository import is_possible_path

MIB: Final = 1 << 20
MAX_GIVEN_BYTES: Final = 48 * MIB
MAX_GIVEN_FILES: Final = 2_000
MAX_STATE_BYTES: Final = 96 * MIB
"""Of the project's changes and the agent's home together."""
MAX_CHANGED: Final = 500
_CHANGED: Final = "changed/"
_ABOUT: Final = "state.json"
_MAX_ABOUT_BYTES: Final = 256 << 10
_MAX_MEMBERS: Final = 20_000


async def pack_project(objects: Objects, files: Mapping[str, Artifact]) -> bytes:
    """An archive of these files by path. Raises Invalid if there are too many, NotFound, and Unavailable."""
    size = sum(artifact.size for artifact in files.values())
    if size > MAX_GIVEN_BYTES or len(files) > MAX_GIVEN_FILES:
        raise Invalid(
            f"The project has {len(files)} files with {size // MIB} MiB; a coding agent gets at most "
            f"{MAX_GIVEN_FILES} files with {MAX_GIVEN_BYTES // MIB} MiB."
        )
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, artifact in files.items():
            body = await objects.load(artifact.object_key, max_bytes=artifact.size)
            member = tarfile.TarInfo(path)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return sink.getvalue()


class _About(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    session: str = Field(max_length=200)
    deleted: list[str] = Field(max_length=MAX_CHANGED)
    left_out: list[str] = Field(max_length=20)
    left_out_count: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class AgentChanges:
    """What a run changed in its project. `refused` are lines about files that are not kept."""

    session: str
    written: Mapping[str, bytes]
    deleted: tuple[str, ...]
    refused: tuple[str, ...]


def read_changes(data: bytes) -> AgentChanges:
    """The changes in a state. Takes about a second for the largest one. Raises Invalid if it is damaged."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            return _read(archive)
    except (tarfile.TarError, ValueError, KeyError, OSError, ValidationError, RecursionError, EOFError) as error:
        raise Invalid("The state of the coding agent can't be read.") from error


def _read(archive: tarfile.TarFile) -> AgentChanges:
    about: _About | None = None
    written: dict[str, bytes] = {}
    refused: list[str] = []
    for count, member in enumerate(archive):
        if count > _MAX_MEMBERS:
            raise Invalid("The state of the coding agent has too many files.")
        body = _open_member(archive, member)
        if body is None:
            continue
        if member.name == _ABOUT:
            about = _About.model_validate(_parse(body.read(_MAX_ABOUT_BYTES)))
        elif member.name.startswith(_CHANGED):
            path = member.name.removeprefix(_CHANGED)
            if problem := _find_problem(path) or ("there are too many" if len(written) >= MAX_CHANGED else ""):
                refused.append(f"{path[:200]!a} ({problem})")
            else:
                written[path] = body.read()
    if about is None:
        raise Invalid("The state of the coding agent is not complete.")
    deleted = tuple(path for path in about.deleted if not _find_problem(path) and path not in written)
    refused += [f"{path[:200]!a} (too large, or one of too many)" for path in about.left_out]
    if more := about.left_out_count - len(about.left_out):
        refused.append(f"{more} more files")
    return AgentChanges(about.session, written, deleted, tuple(refused))


def _open_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
    """A file that has no more bytes than the archive stores: one with holes could be of any size."""
    return archive.extractfile(member) if member.isreg() and not member.issparse() else None


def _parse(data: bytes) -> Any:
    return json.loads(data)


def _find_problem(path: str) -> str:
    try:
        check_path(path)
    except Invalid as error:
        return error.detail
    return "" if is_possible_path(path) else "git reserves this name"


def keep_home(data: bytes) -> bytes:
    """A state without the changes of the project, for the next task of the same session. Raises Invalid."""
    sink = io.BytesIO()
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive,
            tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as kept,
        ):
            for count, member in enumerate(archive):
                body = _open_member(archive, member)
                if body is None or count > _MAX_MEMBERS or member.name.startswith(_CHANGED):
                    continue
                if member.name == _ABOUT:
                    about = _About.model_validate(_parse(body.read(_MAX_ABOUT_BYTES)))
                    body = io.BytesIO(about.model_copy(update={"deleted": []}).model_dump_json().encode())
                    member.size = len(body.getvalue())
                kept.addfile(member, body)
    except (tarfile.TarError, ValueError, KeyError, OSError, ValidationError, RecursionError, EOFError) as error:
        raise Invalid("The state of the coding agent can't be read.") from error
    return sink.getvalue()
