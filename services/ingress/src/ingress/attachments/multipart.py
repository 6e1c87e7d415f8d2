"""Parsing of a multipart message while it streams: a JSON part named `message`, and files in parts named `files`."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from ingress.admission.route import AdmittedRequest, load_json
from ingress.attachments.intake import IncomingFile
from ingress.errors import malformed, too_large, unprocessable

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PART_HEADER_BYTES = 8192
MAX_BOUNDARY_BYTES = 200
ESCAPED = (("%22", '"'), ("%0A", "\n"), ("%0D", "\r"))
"""How browsers and curl escape characters that would end a file name in a header (HTML, "Multipart form data")."""


@dataclass(slots=True)
class _Part:
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    header_bytes: int = 0
    data: bytearray = field(default_factory=bytearray)


async def read_multipart(
    request: AdmittedRequest, *, max_files: int, json_bytes: int
) -> tuple[Any, tuple[IncomingFile, ...]]:
    """The JSON of the part `message`, of at most `json_bytes`, and the files.

    Raises problems: 400 for a malformed body, 413 above a cap.
    """
    message, files = await asyncio.to_thread((await _collect(request, max_files, more_parts=1)).result)
    if len(message) > json_bytes:
        raise too_large(f"The part 'message' is larger than {json_bytes} bytes.")
    return await load_json(message, "The part 'message'"), files


async def read_files(request: AdmittedRequest, *, max_files: int) -> tuple[IncomingFile, ...]:
    """The files of a body without a message. Raises problems as `read_multipart`."""
    return await asyncio.to_thread((await _collect(request, max_files)).files)


async def _collect(request: AdmittedRequest, max_files: int, *, more_parts: int = 0) -> "_Collector":
    collector = _Collector(max_files, more_parts)
    parser = MultipartParser(_read_boundary(request), callbacks=collector.callbacks())
    try:
        async for chunk in request.stream():
            parser.write(chunk)
        parser.finalize()
    except MultipartParseError as error:
        raise malformed("The body is not well-formed multipart/form-data.") from error
    if not collector.ended:
        raise malformed("The multipart body ends before its closing boundary.")
    return collector


def _read_boundary(request: AdmittedRequest) -> bytes:
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_BYTES:
        raise malformed("The multipart content type needs a boundary.")
    return boundary


class _Collector:
    """Handles the parser's callbacks and stores the parts; raises at one part too many or at headers that are too
    long."""

    def __init__(self, max_files: int, more_parts: int) -> None:
        self._max_files = max_files
        self._max_parts = max_files + more_parts
        self._parts: list[_Part] = []
        self._name = bytearray()
        self._value = bytearray()
        self.ended = False

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self._parts) >= self._max_parts:
            raise too_large(f"A message can have at most {self._max_files} files.")
        self._parts.append(_Part())

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._grow_header(self._name, data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._grow_header(self._value, data[start:end])

    def _grow_header(self, target: bytearray, piece: bytes) -> None:
        part = self._parts[-1]
        part.header_bytes += len(piece)
        if part.header_bytes > MAX_PART_HEADER_BYTES:
            raise malformed("The headers of a part are too long.")
        target += piece

    def _header_end(self) -> None:
        self._parts[-1].headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._parts[-1].data += data[start:end]

    def _end(self) -> None:
        self.ended = True

    def result(self) -> tuple[bytes, tuple[IncomingFile, ...]]:
        """The part `message` and the files. It copies them, so call it in a thread."""
        message: bytes | None = None
        files: list[IncomingFile] = []
        for part in self._parts:
            name, options = _disposition(part)
            if name == b"message" and message is None:
                message = bytes(part.data)
            elif name == b"files" and b"filename" in options:
                files.append(_build_file(part, options[b"filename"], len(files)))
            else:
                raise unprocessable("Each part must be named 'message' (exactly one) or be a file named 'files'.")
        if message is None:
            raise unprocessable("The part 'message' is missing.")
        return message, tuple(files)

    def files(self) -> tuple[IncomingFile, ...]:
        """The files of a body that has nothing else. It copies them, so call it in a thread."""
        files: list[IncomingFile] = []
        for part in self._parts:
            name, options = _disposition(part)
            if name != b"files" or b"filename" not in options:
                raise unprocessable("Each part must be a file named 'files'.")
            files.append(_build_file(part, options[b"filename"], len(files)))
        return tuple(files)


def _disposition(part: _Part) -> tuple[bytes, dict[bytes, bytes]]:
    _, options = parse_options_header(part.headers.get(b"content-disposition", b""))
    return options.get(b"name", b""), options


def _build_file(part: _Part, raw_name: bytes, index: int) -> IncomingFile:
    declared, _ = parse_options_header(part.headers.get(b"content-type", b""))
    return IncomingFile(
        filename=_read_name(raw_name),
        declared=declared.decode("latin-1").lower(),
        data=bytes(part.data),
        field=f"files.{index}",
    )


def _read_name(raw: bytes) -> str:
    text = raw.decode("utf-8", errors="replace")
    for escaped, char in ESCAPED:
        text = text.replace(escaped, char)
    return text
