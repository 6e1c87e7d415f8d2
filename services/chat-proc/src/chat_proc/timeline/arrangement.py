"""The rounds of the running turn as a provider's own messages: calls and their results, for models that call tools in
their provider's form. Everything else is the same record as for other models, in user messages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from chat_proc.timeline.view import RenderedItem
from everturn.models.port import Part, PromptMessage, TextPart, ToolCallPart, ToolResultPart
from everturn.timeline.blocks import BlockType, NotesBody, ThinkingBody, ToolCallBody, ToolCodeBody
from everturn.timeline.forms import Form, render_arguments
from everturn.timeline.rendering import MAX_TEXT_CHARS

_WHOLE = frozenset({Form.FULL, Form.LIGHT})
_WRITTEN_BY_MODEL = frozenset({BlockType.THINKING, BlockType.NOTES, BlockType.TOOL_CODE, BlockType.TOOL_CALL})


@dataclass(frozen=True, slots=True)
class ItemPart:
    """One part of an item, apart from its other ones. `index` is its place in the item."""

    item: RenderedItem
    index: int


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What the model wrote, as a part of its own message: its text, or a call with the item of its program."""

    item: RenderedItem
    program: RenderedItem | None = None


ShownItem = RenderedItem | ItemPart | WrittenPart
"""What a request shows of an item: all its parts, or one part."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The messages of a request without its system text and its tail. `shown` says what their parts are, in order."""

    messages: tuple[PromptMessage, ...]
    shown: tuple[ShownItem, ...]


def arrange_natively(
    items: Sequence[RenderedItem], turn_at: int, encode: Callable[[str], str], *, cache_at: frozenset[int] = frozenset()
) -> Arrangement:
    """`turn_at` is the index of the newest turn's first item, `encode` gives the declared name of a tool. The items at
    `cache_at` become cache points; in a round with calls, the last result does.

    A round whose calls or results are hidden, shortened to rows or missing stays part of the record, so providers never
    get a call without its result. The messages of a timeline are a prefix of those of any longer one, up to a break.
    """
    arranger = _Arranger(encode, frozenset(items[at] for at in cache_at))
    arranger.add_record(items[:turn_at])
    for number, group in groupby(items[turn_at:], lambda item: item.item.block.round):
        of_round = list(group)
        exchange = _try_exchange(of_round) if number else None
        if exchange is None:
            arranger.add_record(of_round)
        else:
            arranger.add_exchange(exchange)
    return Arrangement(tuple(arranger.messages), tuple(arranger.shown))


def append_tail(messages: Sequence[PromptMessage], tail: Iterable[str]) -> tuple[PromptMessage, ...]:
    """The messages of a whole request; the texts that no provider caches come last, in a user message."""
    whole = list(messages)
    _append_parts(whole, [TextPart(text) for text in tail if text])
    return tuple(whole)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One round whose calls all have results, and what else it has: before the model's reply, and after it.
    `results` are in the order of the calls."""

    before: list[RenderedItem]
    written: list[RenderedItem]
    results: dict[str, RenderedItem]
    after: list[RenderedItem]


class _Arranger:
    """Builds the messages, and notes what their parts are."""

    def __init__(self, encode: Callable[[str], str], points: frozenset[RenderedItem]) -> None:
        self.messages: list[PromptMessage] = []
        self.shown: list[ShownItem] = []
        self._encode = encode
        self._points = points

    def add_record(self, items: Iterable[RenderedItem]) -> None:
        """Add all parts of the items to a user message."""
        parts: list[Part] = []
        for item in items:
            first, *media = item.parts
            parts += (_mark(first) if item in self._points else first, *media)
            self.shown.append(item)
        _append_parts(self.messages, parts)

    def add_exchange(self, exchange: _Exchange) -> None:
        """Add the model's message, one for each result, and then what follows in user messages."""
        self.add_record(exchange.before)
        self.messages.append(PromptMessage("assistant", tuple(self._write_reply(exchange.written))))
        results = list(exchange.results.items())
        is_point = not self._points.isdisjoint((*exchange.written, *exchange.results.values()))
        for place, (call_id, item) in enumerate(results, start=1):
            part = ToolResultPart(call_id, _read_text(item), cache_point=is_point and place == len(results))
            self.messages.append(PromptMessage("tool", (part,)))
            self.shown.append(ItemPart(item, 0))
        media = [(item, index) for _, item in results for index in range(1, len(item.parts))]
        _append_parts(self.messages, [item.parts[index] for item, index in media])
        self.shown += [ItemPart(item, index) for item, index in media]
        self.add_record(exchange.after)

    def _write_reply(self, written: Sequence[RenderedItem]) -> Iterator[Part]:
        """What the model thought and noted, one text each, then its calls."""
        programs: dict[str, RenderedItem] = {}
        calls: list[RenderedItem] = []
        for item in written:
            match item.item.block.body:
                case ThinkingBody(text=text) | NotesBody(text=text) if text:
                    is_whole = _is_whole(item, text)
                    self.shown.append(WrittenPart(item) if is_whole else ItemPart(item, 0))
                    yield TextPart(text if is_whole else item.item.text)
                case ToolCodeBody() if item.item.block.call_id:
                    programs[item.item.block.call_id] = item
                case ToolCallBody():
                    calls.append(item)
                case _:
                    """An empty text, or a program without a call."""
        for item in calls:
            block = item.item.block
            if isinstance(block.body, ToolCallBody) and block.call_id:
                program = programs.get(block.call_id)
                arguments = render_arguments(block.body, None if program is None else _read_program(program))
                self.shown.append(WrittenPart(item, program))
                yield ToolCallPart(block.call_id, self._encode(block.body.tool_id), arguments)


def _try_exchange(items: Sequence[RenderedItem]) -> _Exchange | None:
    results = {
        str(item.item.block.call_id): item
        for item in items
        if item.item.block.type is BlockType.TOOL_RESULT and item.item.form in _WHOLE and item.item.block.call_id
    }
    calls = [item for item in items if item.item.block.type is BlockType.TOOL_CALL]
    if not calls or not all(_is_shown_call(item) and item.item.block.call_id in results for item in calls):
        return None
    in_order = {str(item.item.block.call_id): results[str(item.item.block.call_id)] for item in calls}
    written = [item for item in items if item.item.block.type in _WRITTEN_BY_MODEL]
    taken = {*written, *in_order.values()}
    rest = [item for item in items if item not in taken]
    first = written[0].item.block.seq
    before = [item for item in rest if item.item.block.seq < first]
    return _Exchange(before, written, in_order, rest[len(before) :])


def _is_shown_call(item: RenderedItem) -> bool:
    """Whether a call is shown, and was not written by a newer version that describes calls in another way."""
    return item.item.form in _WHOLE and isinstance(item.item.block.body, ToolCallBody)


def _is_whole(item: RenderedItem, text: str) -> bool:
    """Whether the model reads its text again as it wrote it, and not shortened."""
    return item.item.form is Form.FULL and len(text) <= MAX_TEXT_CHARS


def _read_program(item: RenderedItem) -> str:
    body = item.item.block.body
    return body.text if isinstance(body, ToolCodeBody) and _is_whole(item, body.text) else item.item.text


def _read_text(item: RenderedItem) -> str:
    """The text of an item, which is its first part."""
    first = item.parts[0]
    return first.text if isinstance(first, TextPart) else ""


def _mark(part: Part) -> Part:
    return replace(part, cache_point=True) if isinstance(part, TextPart) else part


def _append_parts(messages: list[PromptMessage], parts: Sequence[Part]) -> None:
    """Add parts to the last user message, or to a new one."""
    if not parts:
        return
    if messages and messages[-1].role == "user":
        messages[-1] = replace(messages[-1], parts=(*messages[-1].parts, *parts))
    else:
        messages.append(PromptMessage("user", tuple(parts)))
