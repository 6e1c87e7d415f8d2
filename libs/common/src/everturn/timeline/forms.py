"""The forms besides its full text in which a block can be shown, and the text of each.

Every shortened form contains the ref, so that the model can read the rest.
"""

import hashlib
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, cast

from everturn.core.refs import turn_index_ref
from everturn.timeline.blocks import (
    Block,
    ExitBody,
    NotesBody,
    RangeSummaryBody,
    ThinkingBody,
    ToolCallBody,
    ToolCodeBody,
    ToolResultBody,
)
from everturn.timeline.inert import escape_field, escape_line, make_inert
from everturn.timeline.rendering import (
    block_source,
    drop_base64,
    join_lines,
    render_block,
    render_memory_text,
    render_preview,
    shorten,
    title_line,
)

MAX_LIGHT_TEXT_CHARS = 4_000
"""The limit for what a person or the model wrote, in a turn that is recent but not intact: about a thousand tokens."""
MAX_LIGHT_RESULT_CHARS = 400
MAX_LIGHT_ITEMS = 50
MAX_LIGHT_KEYS = 80
MAX_LIGHT_BASE64_CHARS = 4_000
MAX_ROW_CHARS = 720
"""240 tokens at three characters a token; English text has fewer."""
MAX_HINT_CHARS = 180
"""The limit of the excerpt in a row, which says what the block contains: one or two sentences."""
MAX_ROW_REF_CHARS = 400
MAX_CARD_CHARS = 6_000

READ_TOOL = "react.read"
LONG_PARAMS = frozenset({"content", "patch", "replacement"})
"""Parameters with long texts, which are streamed while they are written."""
CODE_PARAM = "code"
"""The parameter with the program of a tool that takes one, in calls in the provider's own form. It is declared last."""

WRITTEN: Final = "written"
"""The form, in manifests only, of what the model wrote and reads again as its own message, without a header."""

UNSEEN = "(this request doesn't show the file itself; a program can read it)\n\n"
"""Follows an attachment that the model can't see."""


class Form(StrEnum):
    """How a block is shown."""

    FULL = "full"
    LIGHT = "light"
    """Long texts shortened, files by ref."""
    ROW = "row"
    """One line with the ref."""
    CARD = "card"
    """The working summary, which replaces its turn."""
    REPLACED = "replaced"
    """The replacement text of `react.hide`."""
    GONE = "gone"


def try_light(block: Block) -> str | None:
    """The block without its bulk; None when it has none."""
    match block.body:
        case ToolResultBody(text=text) as body if len(text) > MAX_LIGHT_RESULT_CHARS:
            light = _light_result(block, body)
        case ToolResultBody() | ToolCallBody():
            return None
        case _ if len(block_source(block)) > MAX_LIGHT_TEXT_CHARS:
            light = join_lines(
                title_line(block), render_preview(_clean(block_source(block)), MAX_LIGHT_TEXT_CHARS, block.ref)
            )
        case _:
            return None
    return light if len(light) < len(render_block(block)) else None


def render_row(block: Block) -> str:
    """The ref and an excerpt, at most MAX_ROW_CHARS; or the full text when that is not longer."""
    if isinstance(block.body, ExitBody):
        return _exit_row(block, block.body)
    title = title_line(block)
    if len(title) > MAX_ROW_REF_CHARS:
        return join_lines(f"[{block.type.value} {turn_index_ref(block.turn_id)}] pruned; the index names its ref")
    row = join_lines(f"{title} (pruned)", make_inert(_hint(block)))
    full = render_block(block)
    return full if len(full) <= len(row) else row


def render_card(block: Block) -> str:
    """The working summary, shown in place of its whole turn."""
    text = render_preview(block_source(block), MAX_CARD_CHARS, block.ref)
    return join_lines(f"{title_line(block)} (stands for the whole turn)", text)


def render_replaced(block: Block, replacement: str) -> str:
    """The replacement that `react.hide` left for a block."""
    return join_lines(f"{title_line(block)} (hidden)", make_inert(replacement))


def render_memory(block: Block, body: RangeSummaryBody) -> str:
    """A summary of blocks that are no longer shown, with the texts it keeps verbatim."""
    title = "[MID-TURN CHECKPOINT]" if body.scope == "turn" else "[COMPACTED PRIOR CONVERSATION MEMORY]"
    return join_lines(title, make_inert(render_memory_text(block.ref, body)))


def _light_result(block: Block, body: ToolResultBody) -> str:
    reduced = _try_reduced_json(body.text)
    if reduced is not None:
        text = make_inert(reduced)
    else:
        status = _read_status(body)
        cap = MAX_LIGHT_RESULT_CHARS if status is None else MAX_LIGHT_TEXT_CHARS
        text = render_preview(body.text if status is None else status, cap, block.ref)
    files = (f"- {escape_line(artifact.ref)} ({artifact.mime})" for artifact in body.artifacts)
    note = f'(pruned, {len(body.text)} characters; full text: react.read paths=["{escape_line(block.ref)}"])'
    return join_lines(title_line(block), text, *files, note)


def _read_status(body: ToolResultBody) -> str | None:
    """The first part of a `react.read` result, up to its first empty line: the refs and ranges it showed, so that the
    same read can be repeated. None for other tools."""
    return body.text.partition("\n\n")[0] if body.tool_id == READ_TOOL else None


def _try_reduced_json(text: str) -> str | None:
    """A JSON text with long lists, objects and strings cut; None when it is not JSON, or still too long."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    reduced = json.dumps(_reduce(value), ensure_ascii=False, separators=(",", ":"))
    return reduced if len(reduced) <= MAX_LIGHT_TEXT_CHARS else None


def _reduce(value: object) -> object:
    match value:
        case str():
            text = _clean(value)
            return text if len(text) <= MAX_LIGHT_RESULT_CHARS else f"{text[:MAX_LIGHT_RESULT_CHARS]}..."
        case list():
            items = cast("list[object]", value)
            return [_reduce(item) for item in items[:MAX_LIGHT_ITEMS]] + _left(len(items), MAX_LIGHT_ITEMS)
        case dict():
            fields = list(cast("dict[str, object]", value).items())
            reduced = {key: _reduce(item) for key, item in fields[:MAX_LIGHT_KEYS]}
            return reduced | ({"...": _left(len(fields), MAX_LIGHT_KEYS)[0]} if len(fields) > MAX_LIGHT_KEYS else {})
        case _:
            return value


def _left(total: int, shown: int) -> list[object]:
    return [f"... {total - shown} more"] if total > shown else []


def _clean(text: str) -> str:
    return drop_base64(text) if len(text) > MAX_LIGHT_BASE64_CHARS else text


def _hint(block: Block) -> str:
    source = block_source(block)
    if isinstance(block.body, ToolResultBody):
        source = _read_status(block.body) or source
    elif isinstance(block.body, ToolCallBody):
        source = source.partition("\n")[2]
    line = " ".join(source[: MAX_HINT_CHARS * 4].split())
    return line if len(line) <= MAX_HINT_CHARS else line[:MAX_HINT_CHARS] + "..."


def _exit_row(block: Block, body: ExitBody) -> str:
    end = body.outcome.value if body.outcome else "failed"
    index = turn_index_ref(block.turn_id)
    return join_lines(
        f"[{block.type.value} {escape_field(block.ref)}] {end} after {body.rounds} rounds; all of it: {index}"
    )


def render_arguments(body: ToolCallBody, program: str | None) -> str:
    """The arguments of a call in the provider's own form: a JSON object, with long strings cut.

    The order of keys is not stored, so it is always the same: sorted, but long texts come last, because the model
    imitates its calls, and a text is streamed only after the parameters that say where it belongs.
    """
    names = sorted(body.params, key=lambda name: (name in LONG_PARAMS, name))
    shown: dict[str, object] = {name: shorten(body.params[name]) for name in names}
    if program is not None:
        shown[CODE_PARAM] = program
    fields = (f"{_dump(name)}: {_dump(value)}" for name, value in shown.items())
    return f"{{{', '.join(fields)}}}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def try_rebuild_arguments(call: Block, code: Block | None, sha256: str) -> str | None:
    """The arguments of a call as a request had them; None when another version rendered them. `code` is the block of
    its program, if it has one."""
    if not isinstance(call.body, ToolCallBody):
        return None
    programs = (None,) if code is None else (text for form in (WRITTEN, *Form) for text in _texts(code, form))
    texts = (render_arguments(call.body, program) for program in programs)
    return next((text for text in texts if hash_text(text) == sha256), None)


def try_rebuild_text(block: Block, form: str, sha256: str) -> str | None:
    """What a request showed of a block; None when another version rendered it, or `react.hide` replaced it."""
    return next((text for text in _texts(block, form) if hash_text(text) == sha256), None)


def hash_text(text: str) -> str:
    """The hash of a text as manifests have it."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _texts(block: Block, form: str) -> Iterator[str]:
    match form:
        case Form.FULL:
            full = render_full(block)
            yield from (full, full + UNSEEN)
        case Form.LIGHT:
            yield try_light(block) or ""
        case Form.ROW:
            yield render_row(block)
        case Form.CARD:
            yield render_card(block)
        case _ if form == WRITTEN and isinstance(block.body, ThinkingBody | NotesBody | ToolCodeBody):
            yield block.body.text
        case _:
            return


def render_full(block: Block) -> str:
    """The whole block, even if it is a summary."""
    return render_memory(block, block.body) if isinstance(block.body, RangeSummaryBody) else render_block(block)
