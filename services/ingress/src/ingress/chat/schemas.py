"""What clients send to a conversation and get back, and how a submission is read from JSON or multipart."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError

from everturn.core.clock import MAX_ZONE_CHARS, load_zone_names
from everturn.events.views import SignalState, SignalView
from everturn.timeline.turns import MAX_EVENT_CREDIT
from ingress.admission.route import AdmittedRequest, check_charset, media_type
from ingress.attachments.intake import IncomingFile, read_declared
from ingress.attachments.multipart import read_multipart
from ingress.bounds import JSON_MAX_BYTES, TEXT_MAX_CHARS, Bounds
from ingress.errors import ProblemError, too_large, unprocessable, unsupported
from ingress.fields import BUNDLE_HELP, BundleId, JsonBody, is_absent, problem_of_validation
from ingress.settings import IngressSettings

ID_EXAMPLE = "turn_01890a5d-ac96-774b-bcce-b302099a8057"
APPROVAL_EXAMPLE = "appr_01890a5d-ac96-774b-bcce-b302099a8057"
MAX_APPROVAL_REASON_CHARS = 2_000
"""Limit for the text of an answer to an approval, which the model reads."""
EVENT_KIND_PATTERN = r"^[a-z][a-z0-9_]{0,39}$"
"""The syntax of the kind of an external object in refs (everturn.core.refs)."""

MAX_PLAIN_FIELDS = 20
"""Limit for a submission that is checked on the event loop; each unknown field is one more error to describe."""
MAX_PLAIN_CHARS = 65_536
"""Limit for the total length of its names and strings. Checking 2 million emoji takes up to 32 ms."""
BASE64_PIECE_CHARS = 262_144
"""A multiple of four, because four characters encode three bytes; decoding 256 KiB takes about a millisecond."""


def check_zone(name: str) -> str:
    """Raises ValueError if `name` is not a time zone."""
    if name not in load_zone_names():
        raise ValueError("is not a time zone; send an IANA name such as Europe/Berlin, or leave it out")
    return name


class AttachmentIn(JsonBody):
    """A file inside a JSON message."""

    filename: str = Field(min_length=1, max_length=1024, examples=["sales.csv"])
    """The name of the file."""
    mime: str = Field(default="", max_length=255, examples=["text/csv"])
    data_base64: str = Field(examples=["bmFtZSxzdW0KYSwxCg=="])
    """The bytes in base64."""


class MessageIn(JsonBody):
    """A message. `kind` and `target_turn_id` matter only while the conversation is busy."""

    text: str = Field(default="", examples=["What is the total by region?"])
    """What the person writes."""
    attachments: tuple[AttachmentIn, ...] = Field(default=(), max_length=100, strict=False)
    """Files of the message, in base64. Larger ones are sent as multipart/form-data."""
    bundle_id: BundleId | None = Field(default=None, description=BUNDLE_HELP)
    target_turn_id: str | None = Field(default=None, max_length=80, examples=[ID_EXAMPLE])
    """The turn that the message is meant for. It must be a turn of this conversation."""
    kind: Literal["followup", "steer"] | None = None
    """Whether the message is added to the running turn as a followup, or steers it."""
    time_zone: Annotated[str, AfterValidator(check_zone)] | None = Field(
        default=None,
        max_length=MAX_ZONE_CHARS,
        description="The person's time zone, an IANA name: the agent is given the local date and time. UTC without it.",
        examples=["Europe/Berlin"],
    )


class EventIn(JsonBody):
    """What a signal of kind `event` carries besides its text; `kind` is one that this server accepts.

    The agent must act on a reactive event; any other is only recorded. `payload` can have at most 16 KiB as JSON.
    `iteration_credit` is the number of rounds that a reactive event adds to the turn.
    """

    kind: str = Field(pattern=EVENT_KIND_PATTERN, examples=["form"])
    """The kind of event, one of those that this server accepts."""
    payload: dict[str, Any] = Field(default_factory=dict, examples=[{"form": "address", "city": "Oslo"}])
    """What the event carries besides its text."""
    reactive: bool = True
    """Whether the agent must act on the event."""
    iteration_credit: int = Field(default=0, ge=0, le=MAX_EVENT_CREDIT)
    """How many rounds the event adds to the turn."""


class SignalIn(JsonBody):
    """Input for the running turn. A steer without text stops it; a cancel needs no text; an event has `event`.

    `approve` and `deny` answer the approval `approval_id`; their text is the reason.

    In an idle conversation, a reactive event starts a turn, and a recorded one waits for the next.
    """

    kind: Literal["followup", "steer", "cancel", "event", "approve", "deny"]
    """What the signal does."""
    text: str = Field(default="", examples=["Only the north, please."])
    """What the person writes, the text of the event, or the reason of an answer to an approval."""
    event: EventIn | None = None
    """What a signal of kind `event` reports."""
    approval_id: str | None = Field(default=None, max_length=80, examples=[APPROVAL_EXAMPLE])
    """The approval that `approve` or `deny` answers."""
    attachments: tuple[AttachmentIn, ...] = Field(default=(), max_length=100, strict=False)
    """Files of the signal, in base64. Larger ones are sent as multipart/form-data."""
    target_turn_id: str | None = Field(default=None, max_length=80, examples=[ID_EXAMPLE])
    """The turn that the signal is meant for; the signal is rejected if that is not the open turn."""


class SignalPatch(JsonBody):
    """A new text for a signal that has not been applied yet."""

    text: str
    """The new text."""


class ReceiptOut(JsonBody):
    """The state of the message: `queued` as a turn or for the next one, or a signal's state.

    A new turn has its `position`: how many turns were ahead of it at that time; with `position_more`, more than that.
    `file_notices` has a sentence for each file that was changed before it was stored, for example by removing the
    video appended to a picture.
    """

    state: SignalState
    """`queued` for a message that became a turn or waits for the next one; otherwise the state of its signal."""
    position: int | None = Field(default=None, exclude_if=is_absent)
    position_more: bool | None = Field(default=None, exclude_if=is_absent)
    file_notices: tuple[str, ...] | None = Field(default=None, exclude_if=is_absent)
    """A sentence for each file that was changed before it was stored."""


class AcceptedOut(JsonBody):
    """The message is stored and will be answered. `signal_id` is set if it was added to the running turn `turn_id`.

    An event that is only recorded has no `turn_id` in an idle conversation: it waits for the next turn.
    """

    conversation_id: str
    turn_id: str | None
    signal_id: str | None = None
    """The signal's id."""
    receipt: ReceiptOut
    """How far it has been processed."""
    events_url: str
    """Where the events of the conversation are streamed."""


class SignalOut(JsonBody):
    """A signal with its receipt."""

    conversation_id: str
    turn_id: str | None
    signal: SignalView
    """The signal."""


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
    if _is_plain(fields):
        return _check(fields, files, form, caps)
    return await asyncio.to_thread(_check, fields, files, form, caps)


def _is_plain(fields: Any) -> bool:
    """Whether checking these fields takes less than a millisecond: they are few and short, and none has parts."""
    if not isinstance(fields, dict):
        return True
    found = cast(dict[str, Any], fields)
    if len(found) > MAX_PLAIN_FIELDS or any(isinstance(value, dict | list | tuple) for value in found.values()):
        return False
    return sum(len(text) for text in (*found, *found.values()) if isinstance(text, str)) <= MAX_PLAIN_CHARS


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
        request.lower_limit(caps.json_bytes)
        return await request.json()
    except ProblemError as error:
        if error.status_code == 413:
            text = f"A JSON body can have at most {caps.json_bytes} bytes. Send larger files as multipart/form-data."
            raise too_large(text) from error
        raise


def check_text(text: str, caps: SubmissionCaps) -> None:
    """Reject a text above the cap (413)."""
    if len(text) > caps.text_chars:
        raise too_large(f"The text is longer than {caps.text_chars} characters.")


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
