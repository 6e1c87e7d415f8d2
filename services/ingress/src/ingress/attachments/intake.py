"""Taking files in: all checks on all files first, then the objects are saved; one bad file refuses the message."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from everturn.errors import EverturnError
from everturn.model.artifacts import object_key
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId, Ids
from everturn.model.uploads import Upload
from everturn.ports.artifacts import Artifacts
from everturn.ports.objects import Objects
from ingress.admission.metrics import IngressMetrics
from ingress.attachments.antivirus import Antivirus, Infected
from ingress.attachments.names import name_apart
from ingress.attachments.refusals import REFUSED, Refused, TooBig, build_refusal
from ingress.attachments.sniffing import Kind, Sniffer, decide_kind
from ingress.attachments.structure.checks import StructureChecks
from ingress.errors import ProblemError, too_large

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file as it was sent; `declared` is the type the client says it has, without parameters, or empty.

    `field` is where it stood in the request, as problems name it.
    """

    filename: str
    declared: str
    data: bytes
    field: str = "files"


@dataclass(frozen=True, slots=True)
class FileCaps:
    """Bytes of one file by family, and how many files a message may have."""

    image_bytes: int
    doc_bytes: int
    text_bytes: int
    files: int

    def of(self, family: str) -> int:
        return {"image": self.image_bytes, "doc": self.doc_bytes, "text": self.text_bytes}[family]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that may be kept."""

    name: str
    mime: str
    data: bytes
    sha256: str
    verdict: str


class Intake:
    """Checks, stores and takes back the files of messages."""

    def __init__(
        self,
        *,
        objects: Objects,
        artifacts: Artifacts,
        antivirus: Antivirus,
        structure: StructureChecks,
        caps: FileCaps,
        ids: Ids,
        metrics: IngressMetrics,
    ) -> None:
        self._objects = objects
        self._artifacts = artifacts
        self._antivirus = antivirus
        self._structure = structure
        self._caps = caps
        self._ids = ids
        self._metrics = metrics
        self._sniffer = Sniffer()
        self._in_flight: Counter[str] = Counter()

    async def check_files(self, files: Sequence[IncomingFile]) -> tuple[CheckedFile, ...]:
        """Raises a problem naming the first bad file: 413, 415, 422, or 503 without an antivirus. Stores nothing."""
        if len(files) > self._caps.files:
            raise too_large(f"A message may have {self._caps.files} files.")
        names = name_apart([file.filename for file in files])
        return tuple([await self._check_file(name, file) for name, file in zip(names, files, strict=True)])

    async def _check_file(self, name: str, file: IncomingFile) -> CheckedFile:
        try:
            kind, sha256 = await asyncio.to_thread(self._inspect, name, file)
            verdict = await self._antivirus.scan(file.data)
            if kind.form is not None:
                await self._structure.check(kind.form, file.data)
        except REFUSED as error:
            raise self._refuse(name, file, error) from error
        return CheckedFile(name, kind.mime, file.data, sha256, verdict)

    def _inspect(self, name: str, file: IncomingFile) -> tuple[Kind, str]:
        kind = decide_kind(name, file.declared, self._sniffer.sniff(file.data), file.data)
        if len(file.data) > (cap := self._caps.of(kind.family)):
            raise TooBig(f"it has more than {cap} bytes")
        return kind, hashlib.sha256(file.data).hexdigest()

    def _refuse(self, name: str, file: IncomingFile, error: Refused) -> ProblemError:
        refusal = build_refusal(name, file.field, error)
        self._metrics.refused_files.labels(reason=refusal.reason).inc()
        if isinstance(error, Infected):
            _log.warning("infected upload refused", signature=str(error), size=len(file.data))
        else:
            _log.info("upload refused", reason=refusal.reason, size=len(file.data), fault=str(error))
        return refusal.problem

    async def save_files(
        self, principal: Principal, conversation_id: ConversationId, files: Sequence[CheckedFile]
    ) -> "SavedFiles":
        """Save the objects of checked files, so that no row is ever without its object."""
        saved = SavedFiles(
            principal, conversation_id, tuple(self._build_upload(conversation_id, file) for file in files)
        )
        keys = saved.keys()
        self._in_flight.update(keys)
        try:
            for key, file in zip(keys, files, strict=True):
                await self._objects.save(key, file.data)
        except BaseException:
            await self.discard(saved)
            raise
        return saved

    def _build_upload(self, conversation_id: ConversationId, file: CheckedFile) -> Upload:
        return Upload(
            id=self._ids.artifact(),
            filename=file.name,
            mime=file.mime,
            size=len(file.data),
            sha256=file.sha256,
            object_key=object_key(conversation_id, file.sha256),
            verdict=file.verdict,
        )

    def keep(self, saved: "SavedFiles") -> None:
        """The rows of these files are committed."""
        self._in_flight.subtract(saved.keys())
        self._in_flight += Counter()

    async def discard(self, saved: "SavedFiles") -> None:
        """Delete objects whose rows were not committed, except those that another row or request of ours shares."""
        self.keep(saved)
        candidates = sorted(key for key in set(saved.keys()) if key not in self._in_flight)
        if not candidates:
            return
        try:
            alone = await self._artifacts.load_unreferenced(saved.principal, candidates)
            await self._objects.delete(alone)
        except EverturnError as error:
            # The refusal that brought us here is what the client must hear; the objects stay until the erasure.
            _log.warning("objects of a refused message were not deleted", keys=candidates, error=str(error))


@dataclass(frozen=True, slots=True)
class SavedFiles:
    """Objects that are stored and have no row yet."""

    principal: Principal
    conversation_id: ConversationId
    uploads: tuple[Upload, ...]

    def keys(self) -> list[str]:
        return [upload.object_key for upload in self.uploads]
