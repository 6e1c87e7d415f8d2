"""The limits of messages, so that a client can check a message before it uploads anything."""

from collections.abc import Mapping
from typing import Literal, cast

from fastapi import APIRouter, Request
from pydantic import Field

from everturn.core.errors import Unavailable
from everturn.turns.inbox import MAX_OPEN_SIGNALS
from ingress.admission.queue_gate import WorkerPoolWatch
from ingress.admission.route import AdmittedRoute
from ingress.attachments.sniffing import ACCEPTED_KINDS, PLAIN
from ingress.attachments.structure.limits import MAX_PIXELS
from ingress.auth.gate import Me
from ingress.bounds import JSON_MAX_BYTES, TEXT_MAX_CHARS, Bounds
from ingress.fields import JsonBody
from ingress.openapi.responses import problems
from ingress.settings import IngressSettings

_FAMILIES: Mapping[str, Literal["image", "document", "text"]] = {"image": "image", "doc": "document", "text": "text"}
router = APIRouter(prefix="/limits/{tenant}/{project}", route_class=AdmittedRoute, tags=["limits"])


class FileType(JsonBody):
    """A type of file that this server accepts. `extensions` are lower case with their dot; a file of the type must have
    one of them. The type with no extensions is text: any file whose name has no extension of another type, and whose
    content is text."""

    family: Literal["image", "document", "text"] = Field(
        description="Which size limit applies: that of images, documents or texts."
    )
    media_type: str = Field(description="Its media type.", examples=["image/png"])
    extensions: tuple[str, ...] = Field(description="Extensions of the names of such files.", examples=[[".png"]])
    max_bytes: int = Field(description="The maximum size of one such file in bytes.", examples=[5_000_000])


class MessageLimits(JsonBody):
    """The largest message that this server accepts. A file counts as an image, a document or a text by its content."""

    message_bytes: int = Field(
        description="The maximum size of the whole request in bytes, with all files and headers of its parts.",
        examples=[25_000_000],
    )
    json_bytes: int = Field(
        description=(
            "The maximum size in bytes of a JSON body, including files in base64, or of the part "
            "`message` of a multipart body."
        ),
        examples=[8_000_000],
    )
    text_chars: int = Field(description="The maximum number of characters in the text.", examples=[1_000_000])
    files: int = Field(description="The maximum number of files in one message.", examples=[20])
    image_bytes: int = Field(
        description="The maximum size in bytes of one JPEG, PNG, GIF or WebP.", examples=[5_000_000]
    )
    document_bytes: int = Field(
        description="The maximum size in bytes of one PDF, .docx, .pptx or .xlsx.", examples=[10_000_000]
    )
    text_bytes: int = Field(
        description="The maximum size in bytes of one text file of any other kind.", examples=[10_000_000]
    )
    image_pixels: int = Field(
        description="The maximum number of pixels in one image: width times height.", examples=[100_000_000]
    )
    file_types: tuple[FileType, ...] = Field(description="The types of files that are accepted; no others are.")
    zeros_in_text: tuple[str, ...] = Field(
        description="Extensions of text that may contain zero bytes, as UTF-16 without a byte order mark does; an "
        "empty string stands for names without an extension. Other text must not contain zero bytes, unless it begins "
        "with the UTF-16 byte order mark.",
        examples=[["", ".txt"]],
    )
    pending_signals: int = Field(
        description="Messages and other signals that may wait for one running turn; one more is a 429.", examples=[64]
    )
    event_streams: int = Field(
        description="Open event streams of one user on one process; one more is a 429.", examples=[32]
    )
    running_turns: int | None = Field(
        description="Turns of one user that run at once while turns of others wait; null while no worker reports it.",
        examples=[3],
    )


@router.get("", responses=problems())
async def get_limits(request: Request, me: Me) -> MessageLimits:
    """The limits for messages on this server. They are the same for all users and change only when a service
    restarts."""
    settings = cast(IngressSettings, request.app.state.settings)
    bounds = cast(Bounds, request.app.state.bounds)
    caps = {"image": settings.max_image_bytes, "doc": settings.max_doc_bytes, "text": settings.max_doc_bytes}
    return MessageLimits(
        message_bytes=settings.message_max_bytes,
        json_bytes=min(JSON_MAX_BYTES, settings.message_max_bytes),
        text_chars=TEXT_MAX_CHARS,
        files=bounds.message_files,
        image_bytes=settings.max_image_bytes,
        document_bytes=settings.max_doc_bytes,
        text_bytes=settings.max_doc_bytes,
        image_pixels=MAX_PIXELS,
        file_types=tuple(
            FileType(
                family=_FAMILIES[kind.family],
                media_type=kind.mime,
                extensions=tuple(sorted(kind.extensions)),
                max_bytes=caps[kind.family],
            )
            for kind in ACCEPTED_KINDS
        ),
        zeros_in_text=tuple(sorted(PLAIN)),
        pending_signals=MAX_OPEN_SIGNALS,
        event_streams=bounds.streams_of_user,
        running_turns=await _load_running_turns(request.app.state.workers),
    )


async def _load_running_turns(watch: WorkerPoolWatch) -> int | None:
    """Also None when Redis does not answer: the other limits are valid anyway."""
    try:
        return (await watch.load()).user_running_max
    except Unavailable:
        return None
