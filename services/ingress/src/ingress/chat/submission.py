"""Parsing of a submission, as JSON or multipart, into a checked form and its files."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from ingress.admission.responses import problem_of_validation
from ingress.admission.route import AdmittedRequest, check_charset, media_type
from ingress.attachments.intake import IncomingFile, read_declared
from ingress.attachments.multipart import read_multipart
from ingress.bounds import JSON_MAX_BYTES, TEXT_MAX_CHARS, Bounds
from ingress.chat.schemas import AttachmentIn, MessageIn, SignalIn
from ingress.errors import ProblemError, too_large, unprocessable, unsupported
from ingress.settings import IngressSettings

BASE64_PIECE_CHARS = 262_144
"""A multiple of four, because four characters encode three bytes; decoding 256 KiB takes about a millisecond."""

Form = TypeVar("Form", MessageIn, SignalIn)


@dataclass(frozen=True, slots=True)
class SubmissionCaps:
    """The limits of one submission."""

    text_chars: int
    files: int
    json_bytes: int


def build_caps(settings: IngressSettings, bounds: Bounds) -> SubmissionCaps:
    """The caps from the settings and bounds."""
    return SubmissionCaps(
        text_chars=TEXT_MAX_CHARS,
        files=bounds.message_files,
        json_bytes=min(JSON_MAX_BYTES, settings.message_max_bytes),
    )


@dataclass(frozen=True, slots=True)
class Submission(Generic[Form]):
    """A checked form and its files."""

    form: Form
    files: tuple[IncomingFile, ...]


async def read_submission(request: AdmittedRequest, form: type[Form], caps: SubmissionCaps) -> Submission[Form]:
    """Read a submission. Raises problems: 400 unreadable, 413 too large, 415 neither JSON nor multipart, 422 not a
    `form`."""
    fields, files = await _read_body(request, caps)
    return await check_submission(fields, files, form, caps)


async def check_submission(
    fields: Any, files: tuple[IncomingFile, ...], form: type[Form], caps: SubmissionCaps
) -> Submission[Form]:
    """Check a submission from any transport. Raises problems: 413 too large, 422 not a `form`."""
    return await asyncio.to_thread(_check, fields, files, form, caps)


def _check(fields: Any, files: tuple[IncomingFile, ...], form: type[Form], caps: SubmissionCaps) -> Submission[Form]:
    try:
        checked = form.model_validate(fields)
    except ValidationError as error:
        raise problem_of_validation(error.errors(include_url=False, include_input=False), "body") from error
    if len(checked.attachments) + len(files) > caps.files:
        raise too_large(f"A message can have at most {caps.files} files.")
    check_text(checked.text, caps)
    return Submission(checked, (*files, *_decode_files(checked.attachments)))


async def _read_body(request: AdmittedRequest, caps: SubmissionCaps) -> tuple[Any, tuple[IncomingFile, ...]]:
    match media_type(request):
        case "application/json":
            check_charset(request)
            return await _load_json_body(request, caps), ()
        case "multipart/form-data":
            return await read_multipart(request, max_files=caps.files, json_bytes=caps.json_bytes)
        case _:
            raise unsupported("Send the message as application/json or multipart/form-data.")


async def _load_json_body(request: AdmittedRequest, caps: SubmissionCaps) -> Any:
    try:
        request.tighten(caps.json_bytes)
        return await request.json()
    except ProblemError as error:
        if error.status_code == 413:
            text = f"A JSON body can have at most {caps.json_bytes} bytes. Send larger files as multipart/form-data."
            raise too_large(text) from error
        raise


def check_text(text: str, caps: SubmissionCaps) -> None:
    """Reject a text above the cap (413)."""
    if len(text) > caps.text_chars:
        raise too_large(f"The text has more than {caps.text_chars} characters.")


def _decode_files(attachments: Sequence[AttachmentIn]) -> list[IncomingFile]:
    return [_decode_file(index, attachment) for index, attachment in enumerate(attachments)]


def _decode_file(index: int, attachment: AttachmentIn) -> IncomingFile:
    text = attachment.data_base64
    try:
        # Decode in pieces, because one call holds the GIL. Only the last one can have padding.
        pieces = [text[at : at + BASE64_PIECE_CHARS] for at in range(0, len(text), BASE64_PIECE_CHARS)]
        decoded = [base64.b64decode(piece, validate=True) for piece in pieces]
        if any(piece.endswith("=") for piece in pieces[:-1]):
            raise ValueError("padding before the end")
        data = b"".join(decoded)
    except (binascii.Error, ValueError) as error:
        field = f"body.attachments.{index}.data_base64"
        raise unprocessable(
            f"{field} is not valid base64.", errors=[{"field": field, "message": "not base64"}]
        ) from error
    return IncomingFile(attachment.filename, read_declared(attachment.mime), data, f"body.attachments.{index}")
