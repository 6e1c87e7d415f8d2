"""The channel parser: reads the model's text in chunks of any size, returns opened / text / closed pieces. It does no
I/O.

The pieces don't depend on how the text is chunked, once adjacent text is merged, and each character is read a bounded
number of times."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple, assert_never

from chat_proc.models.json_values import JsonDepth
from chat_proc.models.markdown_code import MAX_INLINE_CHARS, CodeSplitter, Span, SpanKind

_BEGINNING = re.compile(r"</?(?:[cC]|$)")

Body = Literal["prose", "code", "json"]

MAX_HELD_CHARS = 65_536
_MAX_UNREAD_PIECES = 64


@dataclass(frozen=True, slots=True)
class ChannelSyntax:
    """The syntax of one channel. `body` decides which tags inside it count; `aliases` are alternative names."""

    name: str
    body: Body = "prose"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tag:
    """One complete tag at `start` of the searched text; `text` is how the model wrote it."""

    channel: str
    opens: bool
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class TagTable:
    """Finds `<channel:NAME>` and `</channel:NAME>` of the declared channels; letter case is ignored, blanks are not.

    It never changes, so parsers can share it.
    """

    def __init__(self, channels: Iterable[ChannelSyntax]) -> None:
        self.bodies: dict[str, Body] = {}
        self._names: dict[str, str] = {}
        for channel in channels:
            self._declare(channel)
        if not self._names:
            raise ValueError("no channel is declared")
        self._pattern = re.compile(
            "<(/?)channel:(" + "|".join(re.escape(name) for name in self._names) + ")>", re.IGNORECASE | re.ASCII
        )
        tags = [f"<{slash}channel:{name}>" for name in self._names for slash in ("", "/")]
        self._beginnings = frozenset(tag[:length] for tag in tags for length in range(1, len(tag)))
        self._longest_beginning = max(map(len, tags)) - 1

    def try_find(self, text: str, start: int = 0) -> Tag | None:
        """The first complete tag of `text` from `start` on."""
        found = self._pattern.search(text, start)
        if found is None:
            return None
        return Tag(self._names[found[2].lower()], not found[1], found[0], found.start())

    def may_occur_in(self, text: str) -> bool:
        """Whether `text` may contain a tag or the beginning of one. False is certain, and the check is fast."""
        return _BEGINNING.search(text) is not None

    def settled_chars(self, text: str) -> int:
        """How many characters of `text` can't become part of a still incomplete tag, whatever follows."""
        last = text.rfind("<", max(0, len(text) - self._longest_beginning))
        if last >= 0 and text[last:].lower() in self._beginnings:
            return last
        return len(text)

    def _declare(self, channel: ChannelSyntax) -> None:
        self.bodies[channel.name] = channel.body
        for written in (channel.name, *channel.aliases):
            lowered = written.lower()
            if not re.fullmatch(r"[a-z0-9_-]+", lowered) or lowered in self._names:
                raise ValueError(f"channel name {written!r} is malformed or declared twice")
            self._names[lowered] = channel.name


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """A channel began; `instance` counts from 0 for each name."""

    channel: str
    instance: int


class ChannelText(NamedTuple):
    """Text inside a channel, exactly as written. Built for every chunk; a tuple is twice as fast."""

    channel: str
    instance: int
    text: str


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A channel ended: `complete` by its own closing tag, otherwise by another opening tag or the end of the reply."""

    channel: str
    instance: int
    complete: bool


@dataclass(frozen=True, slots=True)
class OutsideText:
    """Text outside of channels, including blanks between them."""

    text: str


Piece = ChannelOpened | ChannelText | ChannelClosed | OutsideText


class ChannelParser:
    """Feed it text, then call `finish` once.

    The rules depend on the body of the open channel. Text outside of channels follows those of prose.

    - prose: an opening tag in inline code or in a code fence is text, unless that code is all of the text outside of
      channels, or a fence begins that text, or only whitespace follows the fence. A closing tag in code is text only if
      the channel is closed once more.
    - code: a tag counts only at the start of a line. If there is none, the last closing tag inside a line counts.
    - json: a tag counts only outside a value, or at the start of a line if the value never becomes complete.

    If later text decides whether a tag counts, the text after it is held back, at most `max_held_chars` of it.
    """

    def __init__(self, tags: TagTable, *, max_held_chars: int = MAX_HELD_CHARS) -> None:
        self._tags = tags
        self._max_held_chars = max_held_chars
        self._max_quoted_chars = max(max_held_chars, 2 * MAX_INLINE_CHARS)
        """Long enough to know whether a tag is in inline code."""
        self._tag_beginning = ""
        self._at_line_start = True
        self._is_over = False
        self._prose: _Prose | None = _Prose(is_outside=True)
        """None in channels of which the body is not prose."""
        self._outside = self._prose
        """The prose outside of channels. A fence that opens there can go on behind a channel."""
        self._quote: _Quote | None = None
        self._open: _OpenChannel | None = None
        self._instances: dict[str, int] = {}
        self._pieces: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that `text` settles; the end is held back if it may still become a tag."""
        if self._tag_beginning:
            text = self._tag_beginning + text
            self._tag_beginning = ""
        if "<" in text and self._tags.may_occur_in(text):
            settled = self._tags.settled_chars(text)
            self._tag_beginning = text[settled:]
            self._scan(text[:settled])
        else:
            self._pass_text(text)
        pieces = self._pieces
        self._pieces = []
        return pieces

    def try_pass(self, text: str) -> bool:
        """Read a text if all of it belongs to the open prose channel; `feed` would return it unchanged. Otherwise read
        nothing and return False."""
        if self._open is None or self._prose is None or self._tag_beginning or self._quote is not None or "<" in text:
            return False
        self._prose.add(text)
        return True

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Return the rest: held-back text, and the closing of a channel that is still open.

        `cut` means that the reply was ended from outside, so its last characters may be half of a tag. Such a beginning
        of a tag is dropped where the tag would have counted. A reply that ended by itself loses nothing.
        """
        if not (cut and self._beginning_may_count()):
            self._pass_text(self._tag_beginning)
        self._tag_beginning = ""
        self._is_over = True
        if self._prose is not None and (quote := self._quote) is not None:
            if cut and quote.kind is None:
                # The end of inline code may be missing.
                self._release_quote(quote)
            else:
                self._settle_quote(quote, self._prose.finish())
        while self._open is not None and self._open.possible_end is not None:
            self._end_at_possible_end(self._open.possible_end)
        if self._open is not None:
            self._close(complete=False)
        pieces = self._pieces
        self._pieces = []
        return pieces

    def _beginning_may_count(self) -> bool:
        """Whether the held-back beginning can become a tag that counts, by the rules of `_judge`."""
        channel = self._open
        if channel is None or self._at_line_start:
            return True
        if channel.depth is not None and channel.depth.depth:
            return False
        return channel.body != "code" or self._tag_beginning.startswith("</")

    def _scan(self, text: str) -> None:
        """Read text in which every tag is complete."""
        position = 0
        tag = self._tags.try_find(text)
        while tag is not None:
            self._pass_text(text[position : tag.start])
            position = tag.end if self._takes(tag) else tag.start
            tag = self._tags.try_find(text, tag.end)
        self._pass_text(text[position:])

    def _takes(self, tag: Tag) -> bool:
        """Whether the tag counts; otherwise it belongs to the text that follows."""
        if (prose := self._prose) is not None and not self._is_over:
            spans = prose.read(before_tag=True)
            if self._quote is not None:
                self._settle_quote(self._quote, spans)
                return self._takes_after_quote(tag)
            if self._begins_quote(tag, prose):
                return False
        verdict = _judge(self._open, tag, at_line_start=self._at_line_start)
        match verdict:
            case _Verdict.TEXT:
                return False
            case _Verdict.COUNTS:
                self._follow(tag)
                return True
            case _Verdict.MAY_COUNT:
                self._wait_after(tag)
                return True
            case _Verdict.EARLIER_COUNTS:
                self._end_at_possible_end(_possible_end(self._open))
                return self._takes(tag)
            case _:
                assert_never(verdict)

    def _begins_quote(self, tag: Tag, prose: "_Prose") -> bool:
        """Whether the tag may be an example in code. From the first such tag on, the text waits."""
        is_own = self._open is not None and tag.channel == self._open.channel
        may_be_closed_once_more = is_own and prose.in_code and not prose.in_late_fence
        may_be_example = prose.may_have_example if tag.opens else may_be_closed_once_more
        if may_be_example:
            kind: SpanKind | None = "fence" if prose.in_fence else None
            self._quote = _Quote(tag, kind, prose.held_chars, prose.is_blank, own_depth=int(is_own and tag.opens))
        return may_be_example

    def _takes_after_quote(self, tag: Tag) -> bool:
        """Whether a tag counts behind one that may be an example. A tag behind the code shows that it is one. But one
        that ends the channel around it shows that the code was never closed, or that an earlier closing tag was an
        example."""
        if (prose := self._prose) is None or (quote := self._quote) is None:
            return self._takes(tag)
        if self._open is not None and tag.channel == self._open.channel:
            quote.own_depth += 1 if tag.opens else -1
        if quote.own_depth >= 0 and (prose.in_code or not quote.tag.opens):
            return False
        self._release_quote(quote)
        return self._takes(tag)

    def _settle_quote(self, quote: "_Quote", spans: Iterable[Span]) -> None:
        quote.read(spans)
        is_long = quote.chars > self._max_quoted_chars
        is_over = self._is_over or (is_long and not quote.tag.opens)
        if quote.is_meant or (is_over and not quote.is_example):
            self._quote = None
            self._outside = _Prose(is_outside=True)
            self._follow(quote.tag)
            self._scan("".join(quote.held)[len(quote.tag.text) :])
        elif quote.is_example or is_long:
            self._release_quote(quote)

    def _release_quote(self, quote: "_Quote") -> None:
        """The text that waited is an example."""
        self._quote = None
        self._add_text("".join(quote.held))

    def _follow(self, tag: Tag) -> None:
        if tag.opens:
            self._prose = _Prose(is_outside=False) if self._tags.bodies[tag.channel] == "prose" else None
        else:
            self._outside = self._outside if self._outside.in_fence else _Prose(is_outside=True)
            self._prose = self._outside
        if self._open is not None:
            self._release_held(self._open)
            self._close(complete=not tag.opens)
        if tag.opens:
            instance = self._instances.get(tag.channel, 0)
            self._instances[tag.channel] = instance + 1
            self._open = _OpenChannel(tag.channel, instance, self._tags.bodies[tag.channel])
            self._pieces.append(ChannelOpened(tag.channel, instance))
            self._at_line_start = True

    def _close(self, *, complete: bool) -> None:
        if self._open is not None:
            self._pieces.append(ChannelClosed(self._open.channel, self._open.instance, complete))
        self._open = None

    def _wait_after(self, tag: Tag) -> None:
        if self._open is not None:
            self._release_held(self._open)
            self._open.possible_end = tag
        self._at_line_start = False

    def _end_at_possible_end(self, tag: Tag) -> None:
        """The held-back tag ends the channel: the text after it is read again, outside that channel."""
        held = "".join(self._open.held) if self._open else ""
        self._close(complete=not tag.opens)
        self._follow(tag)
        self._scan(held)

    def _pass_text(self, text: str) -> None:
        if not text:
            return
        self._at_line_start = text[-1] == "\n"
        prose, quote = self._prose, self._quote
        if prose is not None:
            prose.add(text)
        if prose is None or quote is None:
            self._add_text(text)
            return
        quote.held.append(text)
        quote.chars += len(text)
        self._settle_quote(quote, prose.read())

    def _add_text(self, text: str) -> None:
        channel = self._open
        if channel is None:
            self._pieces.append(OutsideText(text))
            return
        completed_at = channel.depth.advance(text) if channel.depth is not None else -1
        if channel.possible_end is None:
            self._pieces.append(ChannelText(channel.channel, channel.instance, text))
        else:
            self._hold(channel, channel.possible_end, text, completed_at)

    def _hold(self, channel: "_OpenChannel", possible_end: Tag, text: str, completed_at: int) -> None:
        completed_in_time = 0 <= completed_at <= self._max_held_chars - channel.held_chars
        channel.held.append(text)
        channel.held_chars += len(text)
        if completed_in_time:
            self._release_held(channel)
        elif channel.held_chars > self._max_held_chars:
            if channel.body == "json":
                self._end_at_possible_end(possible_end)
            else:
                self._release_held(channel)

    def _release_held(self, channel: "_OpenChannel") -> None:
        """The held-back tag was text after all."""
        if channel.possible_end is not None:
            text = channel.possible_end.text + "".join(channel.held)
            self._pieces.append(ChannelText(channel.channel, channel.instance, text))
            channel.forget_possible_end()


class _Prose:
    """The code in the text outside of channels since the last tag that counted, or in a prose channel."""

    __slots__ = ("_code", "_unread", "is_blank")

    def __init__(self, *, is_outside: bool) -> None:
        self.is_blank = is_outside
        """Whether nothing but blanks, and the fence that the text ends in, was read outside of channels."""
        self._code = CodeSplitter(MAX_INLINE_CHARS)
        self._unread: list[str] = []

    @property
    def in_fence(self) -> bool:
        """Whether the text ends in a code fence."""
        return self._code.in_fence

    @property
    def in_code(self) -> bool:
        """Whether the text ends in what is code, or may become code."""
        return self._code.in_code

    @property
    def in_late_fence(self) -> bool:
        """Whether the text ends in what becomes a code fence, opened behind other text, only if its end follows."""
        return self._code.in_late_fence

    @property
    def held_chars(self) -> int:
        """How many characters at the end are not in a span yet."""
        return self._code.held_chars

    @property
    def may_have_example(self) -> bool:
        """Whether a tag that follows may be an example; in a fence that begins the text outside, it is meant."""
        return self._code.in_code and not (self._code.in_fence and self.is_blank)

    def add(self, text: str) -> None:
        """Take the next text. It is read when a tag follows, or together with other pieces, which is faster."""
        self._unread.append(text)
        if len(self._unread) > _MAX_UNREAD_PIECES and not self._note(self._skip_lines()):
            self.read()

    def read(self, *, before_tag: bool = False) -> Sequence[Span]:
        """The spans that have become certain since the last call; whole lines without a fence are one text."""
        skipped = self._skip_lines()
        rest = self._unread.pop()
        return self._note((*skipped, *self._code.feed(rest, ends_run=before_tag)))

    def _skip_lines(self) -> Sequence[Span]:
        """The whole lines at the beginning of the unread text, unless they may have a fence; the rest stays unread."""
        text = "".join(self._unread)
        rest = self._code.skip_lines(text)
        self._unread[:] = [rest]
        return (Span(text[: -len(rest) or None], "text"),) if len(rest) < len(text) else ()

    def finish(self) -> Sequence[Span]:
        """The last spans."""
        return self._note(self._code.finish())

    def _note(self, spans: Sequence[Span]) -> Sequence[Span]:
        if self.is_blank:
            is_blank = all(span.kind == "fence" or span.text.isspace() for span in spans)
            has_ended = not self._code.in_fence and any(span.kind == "fence" for span in spans)
            self.is_blank = is_blank and not has_ended
        return spans


@dataclass(slots=True)
class _Quote:
    """Text that waits, from a tag on that may be an example in code."""

    tag: Tag
    kind: SpanKind | None
    """What the tag is in, once that is known."""
    chars_before: int
    """How many characters before the tag the next span begins."""
    begins_text: bool
    """Whether nothing but blanks is before that code, outside of channels."""
    own_depth: int
    """How many tags in it have opened the channel around it, without closing it."""
    goes_on: bool = False
    """Whether more than blanks follow the code."""
    held: list[str] = field(default_factory=list[str])
    chars: int = 0

    @property
    def is_meant(self) -> bool:
        """Whether the tag certainly counts."""
        return self.kind == "text" or (self.kind == "fence" and self.begins_text)

    @property
    def is_example(self) -> bool:
        """Whether the tag is certainly text. A closing tag is only if the channel around it is closed once more."""
        goes_on = self.goes_on or (self.kind == "inline" and not self.begins_text)
        return self.tag.opens and not self.is_meant and goes_on

    def read(self, spans: Iterable[Span]) -> None:
        """Read the next spans, up to that of the tag and behind it."""
        for span in spans:
            if self.kind is None and self.chars_before >= len(span.text):
                self.chars_before -= len(span.text)
                self.begins_text = self.begins_text and span.text.isspace()
            elif self.kind is None:
                self.kind = span.kind
            elif span.kind != "fence" and not span.text.isspace():
                self.goes_on = True


@dataclass(slots=True)
class _OpenChannel:
    """The open channel; the parser alone changes it. `held` is the text after `possible_end`."""

    channel: str
    instance: int
    body: Body
    depth: JsonDepth | None = None
    possible_end: Tag | None = None
    held: list[str] = field(default_factory=list[str])
    held_chars: int = 0

    def __post_init__(self) -> None:
        if self.body == "json":
            self.depth = JsonDepth()

    def forget_possible_end(self) -> None:
        self.possible_end = None
        self.held = []
        self.held_chars = 0


class _Verdict(Enum):
    TEXT = "it is text"
    COUNTS = "it takes effect"
    MAY_COUNT = "what follows decides"
    EARLIER_COUNTS = "it shows that the possible end before it was the end"


def _judge(channel: _OpenChannel | None, tag: Tag, *, at_line_start: bool) -> _Verdict:
    if channel is None:
        return _Verdict.COUNTS if tag.opens else _Verdict.TEXT
    may_end = tag.opens or tag.channel == channel.channel
    if channel.body == "code":
        return _judge_in_code(channel, tag, at_line_start=at_line_start) if may_end else _Verdict.TEXT
    if channel.depth is not None and channel.depth.depth:
        return _judge_in_value(channel, may_end=may_end, at_line_start=at_line_start)
    return _Verdict.COUNTS if may_end else _Verdict.TEXT


def _judge_in_code(channel: _OpenChannel, tag: Tag, *, at_line_start: bool) -> _Verdict:
    if at_line_start:
        blank_since = channel.possible_end is not None and all(part.isspace() for part in channel.held)
        return _Verdict.EARLIER_COUNTS if tag.opens and blank_since else _Verdict.COUNTS
    return _Verdict.TEXT if tag.opens else _Verdict.MAY_COUNT


def _judge_in_value(channel: _OpenChannel, *, may_end: bool, at_line_start: bool) -> _Verdict:
    """JSON strings contain no raw line break: a second tag at the start of a line proves that the value is broken."""
    if not at_line_start:
        return _Verdict.TEXT
    if channel.possible_end is not None:
        return _Verdict.EARLIER_COUNTS
    return _Verdict.MAY_COUNT if may_end else _Verdict.TEXT


def _possible_end(channel: _OpenChannel | None) -> Tag:
    if channel is None or channel.possible_end is None:
        raise AssertionError("only a channel with a possible end is judged to have ended there")
    return channel.possible_end
