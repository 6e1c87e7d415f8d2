"""The parts that the readers of all codecs are made of: the text of a reply, its answer and the fields of its calls."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from chat_proc.channels.actions import StreamedAnswer
from chat_proc.channels.citations import CitationReplacer, cite_text, find_used_sids
from chat_proc.channels.json_text import FieldEnd, FieldPiece
from chat_proc.channels.pieces import AnswerText, AnswerWithdrawn, CodeText, ContentText, DecisionPiece, FieldClosed
from chat_proc.channels.prose import (
    SETTLED_CHARS,
    count_settled_chars,
    judge_beginning,
    may_have_own_form,
    read_usable_text,
)
from chat_proc.models.json_values import FENCE_START
from chat_proc.models.markdown_code import CodeSplitter, Span, SpanKind, split_code
from everturn.core.storable import replace_unstorable
from everturn.models.port import FinishReason
from everturn.timeline.forms import CODE_PARAM, LONG_PARAMS
from everturn.timeline.sources import Source
from everturn.timeline.turns import CutReason

MAX_KNOWN_CHARS = 1_000
_LEADING_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")
_FENCE_LINE = re.compile(rf"{FENCE_START}\s*")


class ReplyText:
    """The text of one reply, as far as it is read: at most `max_chars` characters, all of which can be stored."""

    def __init__(self, max_chars: int) -> None:
        self._chars_left = max_chars
        self._is_capped = False
        self._taken: list[str] = []

    @property
    def is_capped(self) -> bool:
        """Whether the rest of the reply is ignored, because it is too long."""
        return self._is_capped

    @property
    def raw(self) -> str:
        return "".join(self._taken)

    def take(self, text: str) -> str:
        """Return the part of the next text that is to be read."""
        if len(text) > self._chars_left:
            text = text[: self._chars_left]
            self._is_capped = True
        self._chars_left -= len(text)
        text = replace_unstorable(text)
        self._taken.append(text)
        return text

    def find_stop(self, reason: FinishReason) -> CutReason | None:
        """What ended the reply before the model had finished it, if known."""
        return "size_limit" if self._is_capped else None if reason == "stop" else reason


class GrowingAnswer:
    """An answer while it is written: as the model wrote it, and as it is shown, with citations replaced."""

    def __init__(self, cite: CitationReplacer, instance: int = 0) -> None:
        self._cite = cite
        self._instance = instance
        self._raw: list[str] = []
        self._shown: list[str] = []

    @property
    def is_shown(self) -> bool:
        """Whether any of it was shown."""
        return bool(self._shown)

    @property
    def raw(self) -> str:
        """The answer so far, as the model wrote it."""
        return "".join(self._raw)

    def feed(self, raw: str) -> list[DecisionPiece]:
        """Return the next piece of the shown answer, if any."""
        self._raw.append(raw)
        return self._show(self._cite.feed(raw))

    def feed_span(self, span: Span) -> list[DecisionPiece]:
        """The same for a text that its owner has split, instead of `feed`."""
        self._raw.append(span.text)
        return self._show(self._cite.feed_span(span))

    def finish(self, *, complete: bool) -> list[DecisionPiece]:
        """End the answer; returns its last pieces."""
        pieces = self._show(self._cite.finish())
        return [*pieces, FieldClosed("answer", self._instance, complete)] if self._shown else []

    def build(self, *, complete: bool) -> StreamedAnswer | None:
        """The answer so far; None before its first character."""
        if not self._shown:
            return None
        return StreamedAnswer(self.raw, "".join(self._shown), self._cite.used_sids, complete)

    def _show(self, text: str) -> list[DecisionPiece]:
        if not text:
            return []
        self._shown.append(text)
        return [AnswerText(text, self._instance)]


class ProseAnswer:
    """Text that a model writes outside of actions. A reply without an action is the model's answer, so its text is
    streamed as one from its first words on, unless it can still become something else.

    A text is settled as an answer once so many characters, `settled_after`, begin no markup, JSON or a fence of it.
    From markup outside of code on, or an action, it is in doubt: no more of it is shown until its end, when the whole
    text is judged; `is_declared` is that of `read_usable_text`. Blanks around it are dropped.
    """

    def __init__(
        self, cite: CitationReplacer, *, settled_after: int = SETTLED_CHARS, is_declared: bool = False
    ) -> None:
        self._answer = GrowingAnswer(cite)
        self._is_declared = is_declared
        self._settled_after = settled_after
        self._state: Literal["open", "settled", "doubtful", "other"] = "open"
        self._code = CodeSplitter()
        self._waiting = ""
        self._doubtful: list[Span] = []

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet what the text is."""
        return self._state == "open"

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return what can be shown now. The end of `text` is held back if it can still become markup."""
        if self._state == "open":
            text = (self._waiting + text).lstrip()
            self._state = judge_beginning(text, self._settled_after)
            self._waiting = "" if self._state == "settled" else text
        return self._take(self._code.feed(text)) if self._state in ("settled", "doubtful") else []

    def withdraw(self) -> list[DecisionPiece]:
        """Withdraw what was shown, because the text is not an answer."""
        was_shown = self._state != "other" and self._answer.is_shown
        self._state = "other"
        return [AnswerWithdrawn()] if was_shown else []

    def finish(self, *, complete: bool) -> tuple[list[DecisionPiece], StreamedAnswer | None]:
        """End the text; returns its last pieces, and the answer if it is one. A short text is an answer too."""
        pieces = self._take(self._code.finish())
        rest = split_code(self._waiting) if self._state == "open" else [*self._doubtful, Span(self._waiting, "text")]
        if self._state in ("open", "doubtful"):
            text = self._answer.raw + "".join(span.text for span in rest)
            if read_usable_text(text, is_declared=self._is_declared) != text.strip():
                return [*pieces, *self.withdraw()], None
        if self._state == "other":
            return [], None
        pieces += [piece for span in _strip_end(rest) for piece in self._show(span.text, span.kind)]
        pieces += self._answer.finish(complete=complete)
        return pieces, self._answer.build(complete=complete)

    def _take(self, spans: Iterable[Span]) -> list[DecisionPiece]:
        pieces: list[DecisionPiece] = []
        for span in spans:
            if self._state == "doubtful":
                self._doubtful.append(span)
                continue
            self._waiting += span.text
            if may_have_own_form(self._waiting, span.kind):
                self._state = "doubtful"
                self._doubtful.append(Span(self._waiting, span.kind))
                self._waiting = ""
                continue
            settled = count_settled_chars(self._waiting)
            # What waited of the span before has no citations: it is blank, or the beginning of markup.
            pieces += self._show(self._waiting[:settled], span.kind)
            self._waiting = self._waiting[settled:]
        return pieces

    def _show(self, raw: str, kind: SpanKind) -> list[DecisionPiece]:
        return self._answer.feed_span(Span(raw, kind)) if raw else []


def _strip_end(spans: Sequence[Span]) -> list[Span]:
    """The spans without blanks at the end of the last."""
    kept: list[Span] = []
    for span in reversed(spans):
        text = span.text if kept else span.text.rstrip()
        kept += [Span(text, span.kind)] if text else []
    return kept[::-1]


class AnswerField:
    """The answer in a JSON action while it is written: it waits until the action is known to be final."""

    def __init__(self, cite: CitationReplacer, instance: int = 0) -> None:
        self._answer = GrowingAnswer(cite, instance)
        self._waiting: list[str] = []
        self._is_final = False
        self._is_complete: bool | None = None
        """None until the field has ended."""

    @property
    def answer(self) -> StreamedAnswer | None:
        """The streamed part of the answer; None before its first character."""
        return self._answer.build(complete=bool(self._is_complete))

    def feed(self, text: str) -> list[DecisionPiece]:
        """Return what the next text of the field adds."""
        self._waiting.append(text)
        return self._show()

    def end(self, *, complete: bool) -> list[DecisionPiece]:
        """The field has ended."""
        self._is_complete = complete
        return self._show()

    def release(self) -> list[DecisionPiece]:
        """The action is final."""
        self._is_final = True
        return self._show()

    def _show(self) -> list[DecisionPiece]:
        if not self._is_final:
            return []
        raw = "".join(self._waiting)
        self._waiting.clear()
        pieces = self._answer.feed(raw)
        return pieces if self._is_complete is None else pieces + self._answer.finish(complete=self._is_complete)


class CallFields:
    """The parameters of one call while it is written: long texts are shown, and short ones say where these belong."""

    def __init__(self, instance: int, *, tool_id: str | None = None, code_tools: frozenset[str] = frozenset()) -> None:
        self.tool_id = tool_id
        self._instance = instance
        self._code_tools = code_tools
        self._known: dict[str, str] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def read(self, piece: FieldPiece) -> list[DecisionPiece]:
        """Return what the next piece of a parameter shows."""
        name = str(piece.path[-1])
        if isinstance(piece, FieldEnd):
            if piece.complete:
                self._ended.add(name)
            return [FieldClosed("content", self._instance, piece.complete)] if name in self._begun else []
        if name == CODE_PARAM and self.tool_id in self._code_tools:
            return [CodeText(piece.text, self._instance)]
        if name in LONG_PARAMS:
            self._begun.add(name)
            return [self._build_content(name, piece.text)]
        self._known[name] = (self._known.get(name, "") + piece.text)[:MAX_KNOWN_CHARS]
        return []

    def _build_content(self, param: str, text: str) -> ContentText:
        return ContentText(
            text,
            self._instance,
            param,
            tool_id=self.tool_id,
            path=self._known.get("path") if "path" in self._ended else None,
            channel=self._known.get("channel"),
            kind=self._known.get("kind"),
        )


def cite_answer(sources: Mapping[int, Source], answer: str, *, complete: bool = True) -> StreamedAnswer:
    """An answer that was not streamed, as one that was."""
    return StreamedAnswer(answer, cite_text(sources, answer), find_used_sids(sources, answer), complete)


def show_whole(answer: StreamedAnswer, instance: int = 0) -> list[DecisionPiece]:
    """The pieces of an answer that was not streamed."""
    return [AnswerText(answer.shown, instance), FieldClosed("answer", instance, answer.complete)]


def clean_program(text: str) -> str:
    """A program without the surrounding code fence and blank lines that models write; empty if nothing remains."""
    lines = text.strip().split("\n") if text.lstrip().startswith("```") else []
    if len(lines) > 1 and _FENCE_LINE.fullmatch(lines[0]) and lines[-1].strip() == "```":
        text = "\n".join(lines[1:-1])
    blank = _LEADING_BLANK_LINES.match(text)
    body = text[blank.end() if blank else 0 :].rstrip()
    return f"{body}\n" if body else ""
