"""Writing to the terminal: answers to standard output, everything else to standard error, colour only on terminals."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TextIO

from everturn.core.errors import EverturnError
from everturn_client.terminal.markdown import MarkdownWriter, make_inert

Tone = Literal["answer", "output", "thinking", "info", "good", "bad"]
_CODES: dict[Tone, str] = {"answer": "", "output": "", "thinking": "2;3", "info": "2", "good": "32", "bad": "31"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text to write. Only `answer` and `output` are written to standard output.

    An `answer` is Markdown, which is laid out on a terminal and written unchanged to a file; `begins` marks the start
    of a new text instead of a continuation.
    """

    tone: Tone
    text: str
    begins: bool = False


class OutputClosed(EverturnError):
    """The program that read the output has ended, as `head` does."""


class Screen:
    """The two streams of a terminal program. Text is escaped: it can't move the cursor or change colours."""

    def __init__(self, out: TextIO, err: TextIO, *, colour: bool) -> None:
        self._out = out
        self._err = err
        self._colour = colour
        self._markdown = (
            MarkdownWriter(lambda text: _write(out, text), find_columns=lambda: _find_columns(out), colour=colour)
            if out.isatty()
            else None
        )

    @property
    def is_terminal(self) -> bool:
        """Whether the output is shown at once, and not a file or a pipe."""
        return self._markdown is not None

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write and flush. Raises OutputClosed."""
        for piece in pieces:
            stream = self._out if piece.tone in ("answer", "output") else self._err
            text = make_inert(piece.text)
            if self._markdown and piece.tone == "answer":
                if piece.begins:
                    self._markdown.begin()
                self._markdown.feed(text)
                continue
            self.end_answer()
            code = _CODES[piece.tone] if self._colour and stream.isatty() else ""
            _write(stream, f"\x1b[{code}m{text}\x1b[0m" if code else text)

    def say(self, text: str, tone: Tone = "info") -> None:
        """Write one line."""
        self.write([Piece(tone, f"{text}\n")])

    def end_answer(self) -> None:
        """Show the part of an answer that is held back until its layout is certain. Raises OutputClosed."""
        if self._markdown:
            self._markdown.end()

    def write_raw(self, line: bytes) -> None:
        """Write one line of machine-readable output. Raises OutputClosed."""
        _write(self._out, line.decode() + "\n")


def _find_columns(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or shutil.get_terminal_size().columns
    except OSError:
        return shutil.get_terminal_size().columns


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
