"""What a message may carry, so that a client can check it before it uploads anything."""

from typing import cast

from fastapi import APIRouter, Request
from pydantic import Field

from ingress.admission.json_body import JsonBody
from ingress.admission.responses import problems
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.settings import IngressSettings

router = APIRouter(prefix="/limits/{tenant}/{project}", route_class=AdmittedRoute, tags=["limits"])


class MessageLimits(JsonBody):
    """The largest message that this server accepts. A file counts as an image, a document or a text by its content."""

    message_bytes: int = Field(
        description="Bytes of the whole request with all files and headers of its parts.", examples=[25_000_000]
    )
    json_bytes: int = Field(
        description="Bytes of a body that is JSON, with files in base64, and of the part `message` of any other.",
        examples=[8_000_000],
    )
    text_chars: int = Field(description="Characters of the text.", examples=[1_000_000])
    files: int = Field(description="Files of one message.", examples=[20])
    image_bytes: int = Field(description="Bytes of one JPEG, PNG, GIF or WebP.", examples=[5_000_000])
    document_bytes: int = Field(description="Bytes of one PDF, .docx, .pptx or .xlsx.", examples=[10_000_000])
    text_bytes: int = Field(description="Bytes of one text file of any other kind.", examples=[10_000_000])


@router.get("", responses=problems())
async def get_limits(request: Request, me: Me) -> MessageLimits:
    """The limits of a message here. They are the same for everybody and change only when the server is restarted."""
    settings = cast(IngressSettings, request.app.state.settings)
    return MessageLimits(
        message_bytes=settings.message_max_bytes,
        json_bytes=min(settings.json_max_bytes, settings.message_max_bytes),
        text_chars=settings.message_max_text_chars,
        files=settings.max_files,
        image_bytes=settings.max_image_bytes,
        document_bytes=settings.max_doc_bytes,
        text_bytes=settings.max_text_bytes,
    )
