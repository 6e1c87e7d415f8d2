"""Reading what was submitted, as JSON or multipart, into a checked form and its files."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from ingress.admission.request import AdmittedRequest, check_charset, media_type
from ingress.admission.validation import problem_of_validation
from ingress.attachments.intake import IncomingFile, read_declared
from ingress.attachments.multipart import read_multipart
from ingress.chat.schemas import AttachmentIn, MessageIn, SignalIn
from ingress.errors import too_large, unprocessable, unsupported

Form = TypeVar("Form", MessageIn, SignalIn)


@dataclass(frozen=True, slots=True)
class SubmissionCaps:
    """How much one submission may hold."""

    text_chars: int
    files: int


@dataclass(frozen=True, slots=True)
class Submission(Generic[Form]):
    """A checked form and the files that came with it."""

    form: Form
    files: tuple[IncomingFile, ...]


async def read_submission(request: AdmittedRequest, form: type[Form], caps: SubmissionCaps) -> Submission[Form]:
    """Raises problems: 400 unreadable, 413 too large, 415 neither JSON nor multipart, 422 not a `form`."""
    fields, files = await _read_body(request, caps)
    return await check_submission(fields, files, form, caps)


async def check_submission(
    fields: Any, files: tuple[IncomingFile, ...], form: type[Form], caps: SubmissionCaps
) -> Submission[Form]:
    """What was read, however it came, as a submission. Raises problems: 413 too large, 422 not a `form`."""
    try:
        checked = form.model_validate(fields)
    except ValidationError as error:
        raise problem_of_validation(error.errors(), "body") from error
    if len(checked.attachments) + len(files) > caps.files:
        raise too_large(f"A message may have {caps.files} files.")
    check_text(checked.text, caps)
    inline = await asyncio.to_thread(_decode_files, checked.attachments)
    return Submission(checked, (*files, *inline))


async def _read_body(request: AdmittedRequest, caps: SubmissionCaps) -> tuple[Any, tuple[IncomingFile, ...]]:
    match media_type(request):
        case "application/json":
            check_charset(request)
            return await request.json(), ()
        case "multipart/form-data":
            return await read_multipart(request, max_files=caps.files)
        case _:
            raise unsupported("Send the message as application/json or multipart/form-data.")


def check_text(text: str, caps: SubmissionCaps) -> None:
    """Refuse a text above the cap (413)."""
    if len(text) > caps.text_chars:
        raise too_large(f"The text has more than {caps.text_chars} characters.")


def _decode_files(attachments: Sequence[AttachmentIn]) -> list[IncomingFile]:
    return [_decode_file(index, attachment) for index, attachment in enumerate(attachments)]


def _decode_file(index: int, attachment: AttachmentIn) -> IncomingFile:
    try:
        data = base64.b64decode(attachment.data_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        field = f"body.attachments.{index}.data_base64"
        raise unprocessable(f"{field} is not base64.", errors=[{"field": field, "message": "not base64"}]) from error
    return IncomingFile(attachment.filename, read_declared(attachment.mime), data, f"body.attachments.{index}")
