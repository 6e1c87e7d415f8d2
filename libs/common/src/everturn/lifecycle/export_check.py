"""Writes and verifies an export: each line ends with a hash over itself and the line before it. Pure."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from pydantic import ValidationError

from everturn.core.errors import EverturnError
from everturn.lifecycle.exports import (
    EXPORT_LINE,
    ArtifactLine,
    BlockLine,
    BrokenLine,
    EndLine,
    ExportLine,
    FeedbackLine,
    HeaderLine,
    SignalLine,
)
from everturn.timeline.blocks import GENESIS_HASH, link_hash

_LINE = re.compile(rb'(\{.*),"chain":"([0-9a-f]{64})"\}\n', re.DOTALL)


class ExportWriter:
    """Renders the bytes of one line after the other, and counts them."""

    def __init__(self) -> None:
        self._chain = GENESIS_HASH
        self._last_hash = GENESIS_HASH
        self._counts: dict[str, int] = dict.fromkeys(("block", "artifact", "signal", "feedback"), 0)

    def render(self, line: ExportLine) -> bytes:
        """The line as it is written to the file, with its line break."""
        match line:
            case BlockLine():
                self._last_hash = line.hash
                self._counts[line.line] += 1
            case ArtifactLine() | SignalLine() | FeedbackLine():
                self._counts[line.line] += 1
            case _:
                """The header and the end line are not counted."""
        text = line.model_dump_json().removesuffix("}")
        self._chain = chain_line(self._chain, text.encode())
        return f'{text},"chain":"{self._chain}"}}\n'.encode()

    def render_end(self) -> bytes:
        """The end line: totals of what was rendered so far."""
        return self.render(
            EndLine(
                blocks=self._counts["block"],
                artifacts=self._counts["artifact"],
                signals=self._counts["signal"],
                feedback=self._counts["feedback"],
                last_hash=self._last_hash,
            )
        )


def chain_line(previous: str, text: bytes) -> str:
    """The hash of a line. `text` is the line up to the comma before its own hash."""
    return hashlib.sha256(previous.encode() + text).hexdigest()


class ExportBroken(EverturnError):
    """The export was changed after it was written, or is incomplete."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")
        self.number = number
        self.why = why


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The content of a valid export. Compare `last_hash` with one stored elsewhere: someone who can rewrite the file
    can also recompute its hashes."""

    conversation_id: str
    end: EndLine


def check_export(lines: Iterable[bytes]) -> ExportReport:
    """Read a file line by line, with line breaks. Raises ExportBroken with the number of the first wrong line."""
    reading = _Reading()
    number = 0
    for number, raw in enumerate(lines, start=1):
        try:
            reading.take(raw)
        except ValueError as error:
            raise ExportBroken(number, str(error)) from error
    if reading.header is None or reading.end is None:
        raise ExportBroken(number + 1, "the end line is missing.")
    return ExportReport(reading.header.conversation_id, reading.end)


class _Reading:
    """The state of reading a file. `take` raises ValueError for a wrong line."""

    def __init__(self) -> None:
        self.header: HeaderLine | None = None
        self.end: EndLine | None = None
        self._chain = GENESIS_HASH
        self._last_hash = GENESIS_HASH
        self._counts: dict[str, int] = dict.fromkeys(("block", "artifact", "signal", "feedback"), 0)

    def take(self, raw: bytes) -> None:
        line = self._parse(raw)
        if self.end is not None:
            raise ValueError("it follows the end line.")
        if (self.header is None) is not isinstance(line, HeaderLine):
            raise ValueError("the header must be the first line, and only the first.")
        match line:
            case HeaderLine():
                self.header = line
            case BlockLine():
                self._check_block(line)
                self._counts[line.line] += 1
            case ArtifactLine() | SignalLine() | FeedbackLine():
                self._counts[line.line] += 1
            case BrokenLine(detail=detail):
                raise ValueError(f"the export was interrupted here: {detail}")
            case EndLine():
                self._check_end(line)
                self.end = line
            case _:
                assert_never(line)

    def _parse(self, raw: bytes) -> ExportLine:
        match = _LINE.fullmatch(raw)
        if match is None:
            raise ValueError("it is not a line of an export.")
        text, given = match.groups()
        self._chain = chain_line(self._chain, text)
        if not hmac.compare_digest(self._chain, given.decode()):
            raise ValueError("this line was changed, or lines before it were changed or reordered.")
        try:
            return EXPORT_LINE.validate_json(text + b"}")
        except ValidationError as error:
            raise ValueError(f"its content is invalid: {error.errors()[0]['msg']}") from error

    def _check_block(self, line: BlockLine) -> None:
        if line.seq != self._counts["block"] + 1:
            raise ValueError(f"expected block {self._counts['block'] + 1}, found {line.seq}.")
        if line.previous != self._last_hash:
            raise ValueError(f"block {line.seq} does not follow the previous block.")
        self._last_hash = link_hash(
            line.previous,
            seq=line.seq,
            turn_id=line.turn_id,
            round=line.round,
            type=line.type,
            ref=line.ref,
            call_id=line.call_id,
            ts=line.ts,
            body=line.body,
        )
        if line.hash != self._last_hash:
            raise ValueError(f"block {line.seq} does not match its hash.")

    def _check_end(self, end: EndLine) -> None:
        named = {"block": end.blocks, "artifact": end.artifacts, "signal": end.signals, "feedback": end.feedback}
        for kind, count in named.items():
            if count != self._counts[kind]:
                raise ValueError(f"expected {count} {kind} lines, found {self._counts[kind]}.")
        started = self.header
        if started is None or (started.blocks, started.last_hash) != (end.blocks, end.last_hash):
            raise ValueError("the blocks do not match the header.")
        if end.last_hash != self._last_hash:
            raise ValueError("the last block does not match the end line.")
