"""Accepting files: all files are checked before any object is saved; one bad file rejects the message with the
reason."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import assert_never

import structlog

from everturn.core.cancellation import answered_within
from everturn.core.errors import EverturnError, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import CollectionId, ConversationId, Ids
from everturn.files.model import Upload, upload_key
from everturn.files.objects import Objects
from ingress.admission.slots import OpenSlots
from ingress.attachments.antivirus import Antivirus, Infected, Unscannable
from ingress.attachments.sniffing import Kind, NotAcceptable, NotAccepted, Sniffer, decide_kind, name_apart
from ingress.attachments.structure.checks import StructureChecks
from ingress.attachments.structure.limits import Unsound
from ingress.errors import ProblemError, too_large, unavailable, unprocessable, unsupported
from ingress.metrics import IngressMetrics

_log = structlog.get_logger(__name__)

CHECKED_AT_ONCE, CHECKED_AT_ONCE_OF_USER = 64, 8
"""Messages whose files are checked or wait for it. The checkers and clamd process a few and let 32 wait, each for a
file of one message: these limits keep one user from blocking everybody else."""

DISCARD_LIMIT_S = 1.0
"""How long a final answer waits for a store to delete unused files."""


class TooBig(Exception):
    """The file has more bytes than its type may have (413)."""


Refused = TooBig | NotAccepted | NotAcceptable | Infected | Unscannable | Unsound | Unavailable
REFUSED = (TooBig, NotAccepted, NotAcceptable, Infected, Unscannable, Unsound, Unavailable)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The problem for the client, and the metric label under which it is counted."""

    reason: str
    problem: ProblemError


def build_refusal(name: str, field: str, error: Refused) -> Refusal:
    """Build a refusal. `name` is the file's clean name, `field` its place in the request."""
    say = f"The file {name!r} was rejected: {error.detail if isinstance(error, Unavailable) else error}"
    message = say if say.endswith(".") else f"{say}."
    fields = [{"field": field, "message": message}]
    match error:
        case TooBig():
            return Refusal("size", too_large(message, errors=fields))
        case NotAccepted():
            return Refusal("type", unsupported(message, errors=fields))
        case NotAcceptable():
            return Refusal("content", unprocessable(message, errors=fields))
        case Infected():
            return Refusal("infected", unprocessable(message, errors=fields))
        case Unscannable():
            return Refusal("unscannable", unprocessable(message, errors=fields))
        case Unsound():
            return Refusal("structure", unprocessable(message, errors=fields))
        case Unavailable():
            return Refusal("unavailable", unavailable(message, errors=fields))
        case _:
            assert_never(error)


@dataclass(frozen=True)
class IncomingFile:
    """A file as it was sent; `declared` is the type that the client declares, without parameters, or empty.

    `field` is its place in the request, as problems name it.
    """

    filename: str
    declared: str
    data: bytes
    field: str = "files"

    @cached_property
    def sha256(self) -> str:
        """The hash of the data, in hex. The first access takes 18 ms for 25 MB, so make it in a thread."""
        return hashlib.sha256(self.data).hexdigest()


def read_declared(text: str) -> str:
    """The type that a client declares for a file, in lower case and without parameters; empty if none."""
    return text.partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class FileCaps:
    """Bytes of one file by family, and the number of files per message."""

    image_bytes: int
    doc_bytes: int
    text_bytes: int
    files: int

    def of(self, family: str) -> int:
        return {"image": self.image_bytes, "doc": self.doc_bytes, "text": self.text_bytes}[family]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that can be stored. `change` says how `data` differs from what was sent; empty when it does not.

    `mime` names the encoding of a text that is not UTF-8, as in `text/csv; charset=windows-1252`.
    """

    name: str
    mime: str
    data: bytes
    sha256: str
    verdict: str
    change: str = ""


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Intake:
    """Checks, stores and discards the files of messages."""

    def __init__(
        self,
        *,
        objects: Objects,
        antivirus: Antivirus,
        structure: StructureChecks,
        caps: FileCaps,
        ids: Ids,
        metrics: IngressMetrics,
    ) -> None:
        self._objects = objects
        self._antivirus = antivirus
        self._structure = structure
        self._caps = caps
        self._ids = ids
        self._metrics = metrics
        self._sniffer = Sniffer()
        self._messages = OpenSlots(
            max_total=CHECKED_AT_ONCE,
            max_per_user=CHECKED_AT_ONCE_OF_USER,
            singular="message with files",
            plural="uploads",
        )

    async def check_files(self, principal: Principal, files: Sequence[IncomingFile]) -> tuple[CheckedFile, ...]:
        """Check all files. Raises a problem that names the first bad file: 413, 415, 422, or 503 without an antivirus.
        Stores nothing."""
        if len(files) > self._caps.files:
            raise too_large(f"A message can have at most {self._caps.files} files.")
        names = name_apart([file.filename for file in files])
        if not files:
            return ()
        with self.checking(principal):
            return tuple(
                [
                    await self._check_file(principal.limited_as, name, file)
                    for name, file in zip(names, files, strict=True)
                ]
            )

    def checking(self, principal: Principal) -> AbstractContextManager[None]:
        """Hold one of the places for uploads that are being checked. Raises a 429 or 503 problem if there is none."""
        return self._messages.holding(principal)

    async def scan(self, principal: Principal, name: str, data: bytes) -> None:
        """Scan a checked upload, which is the body of its request. Raises a problem that names it: 422, or 503 without
        an antivirus."""
        try:
            await self._antivirus.scan(data, principal.limited_as)
        except (Infected, Unscannable, Unavailable) as error:
            raise self._refuse(name, "body", len(data), error) from error

    async def _check_file(self, person: str, name: str, file: IncomingFile) -> CheckedFile:
        try:
            kind = await asyncio.to_thread(self._decide_kind, name, file)
            # Check the structure before the scan: an antivirus can spend gigabytes on a file whose header already
            # exceeds a limit.
            sound = await self._structure.check(kind.form, file.data, person)
            data = sound.content or file.data
            self._check_size(kind, data)
            verdict = await self._antivirus.scan(data, person)
        except REFUSED as error:
            raise self._refuse(name, file.field, len(file.data), error) from error
        sha256 = await asyncio.to_thread(_hash, data) if sound.content else file.sha256
        mime = f"{kind.mime}; charset={sound.charset}" if sound.charset else kind.mime
        if sound.change:
            _log.info("Changed an upload", form=kind.form, size=len(file.data), stored=len(data), change=sound.change)
        return CheckedFile(name, mime, data, sha256, verdict, sound.change)

    def _decide_kind(self, name: str, file: IncomingFile) -> Kind:
        kind = decide_kind(name, file.declared, self._sniffer.sniff(file.data), file.data)
        self._check_size(kind, file.data)
        _ = file.sha256  # hashed here, in a thread, for the row and the idempotency key
        return kind

    def _check_size(self, kind: Kind, data: bytes) -> None:
        if len(data) > (cap := self._caps.of(kind.family)):
            raise TooBig(f"it is larger than {cap} bytes")

    def _refuse(self, name: str, field: str, size: int, error: Refused) -> ProblemError:
        refusal = build_refusal(name, field, error)
        self._metrics.refused_files.labels(reason=refusal.reason).inc()
        if isinstance(error, Infected):
            _log.warning("Rejected an infected upload", signature=str(error), size=size)
        else:
            _log.info("Rejected an upload", reason=refusal.reason, size=size, fault=str(error))
        return refusal.problem

    async def save_files(
        self, owner: ConversationId | CollectionId, files: Sequence[CheckedFile], begun_at: datetime
    ) -> "SavedFiles":
        """Save the objects of checked files of a conversation or collection, so that no row ever lacks its object.

        `begun_at` is the database's time before this call.
        """
        saved = SavedFiles(tuple(self._build_upload(owner, file, begun_at) for file in files))
        try:
            for upload, file in zip(saved.uploads, files, strict=True):
                await self._objects.save(upload.object_key, file.data)
        except EverturnError:
            await self.discard(saved)
            raise
        return saved

    def _build_upload(self, owner: ConversationId | CollectionId, file: CheckedFile, begun_at: datetime) -> Upload:
        artifact_id = self._ids.artifact()
        return Upload(
            id=artifact_id,
            filename=file.name,
            mime=file.mime,
            size=len(file.data),
            sha256=file.sha256,
            object_key=upload_key(owner, file.sha256, artifact_id),
            verdict=file.verdict,
            begun_at=begun_at,
            description=file.change,
        )

    async def discard(self, saved: "SavedFiles") -> None:
        """Delete the objects of files that will get no row. Their keys are unique to this message."""
        await self.discard_objects(saved.keys())

    async def discard_objects(self, keys: Sequence[str]) -> None:
        """Delete objects that no row names, or names any more.

        Takes at most a second: the answer is already certain, and workers delete what a slow store still has.
        """
        if not keys:
            return
        try:
            async with answered_within(DISCARD_LIMIT_S):
                await self._objects.delete(keys)
        except (EverturnError, TimeoutError) as error:
            # The client must get the original error; the sweeper of objects finds these later.
            _log.warning("Could not delete unused objects", keys=keys, error=str(error) or "no response in time")


@dataclass(frozen=True, slots=True)
class SavedFiles:
    """Stored objects that have no row yet."""

    uploads: tuple[Upload, ...]

    def notices(self) -> tuple[str, ...]:
        """A sentence for each file whose stored bytes differ from those that were sent."""
        changed = (upload for upload in self.uploads if upload.description)
        return tuple(f"The file {upload.filename!r} was changed: {upload.description}" for upload in changed)

    def keys(self) -> list[str]:
        return [upload.object_key for upload in self.uploads]
