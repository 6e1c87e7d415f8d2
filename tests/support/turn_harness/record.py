"""A conversation as text that a person can review: replies, blocks, requests, events."""

import re

from everturn.events.model import ChatDelta, Envelope
from everturn.models.port import MediaPart, ModelRequest
from everturn.timeline.blocks import Block
from everturn_testing.models.scripted_model import Pause, Say, Script
from turn_harness.harness import Bench

_ID = re.compile(r"\b(conv|turn|call|art|sig|plan)_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-0*([0-9a-f]+)")


async def render_conversation(bench: Bench) -> str:
    """All four views, ids shortened to their number, in the order in which one makes the next."""
    parts = [
        ("MODEL", [_render_script(script) for script in bench.scripts]),
        ("BLOCKS", [_render_block(block) for block in bench.blocks]),
        ("REQUESTS", _render_requests(bench.model.requests)),
        ("EVENTS", _render_events(await bench.published())),
    ]
    text = "\n".join(f"=== {title} ===\n" + "\n".join(lines) + "\n" for title, lines in parts)
    return _ID.sub(r"\1_\2", text)


def _render_script(script: Script) -> str:
    steps = [Say(script)] if isinstance(script, str) else script
    reported = [
        step.text if isinstance(step, Say) else "(waits)" if isinstance(step, Pause) else str(step) for step in steps
    ]
    return "- " + " ".join(reported).replace("\n", "\n  ")


def _render_block(block: Block) -> str:
    call = f" {block.call_id}" if block.call_id else ""
    return f"{block.seq} round {block.round} {block.type.value} {block.ref}{call}\n    {block.body_json}"


def _render_requests(requests: list[ModelRequest]) -> list[str]:
    lines: list[str] = []
    before: list[str] = []
    for number, request in enumerate(requests, start=1):
        parts = [
            f"<{part.mime} {part.name}>" if isinstance(part, MediaPart) else part.text
            for message in request.messages
            for part in message.parts
        ]
        same = next((n for n, pair in enumerate(zip(before, parts, strict=False)) if pair[0] != pair[1]), len(before))
        lines.append(f"--- request {number}: {same} parts as before, then")
        lines += ["  | " + line for part in parts[same:] for line in part.rstrip("\n").split("\n")]
        before = parts
    return lines


def _render_events(events: list[Envelope]) -> list[str]:
    """Pieces of one text are joined, because where they are cut does not matter."""
    lines: list[str] = []
    published: dict[tuple[int | None, str, int], int] = {}
    for event in events:
        where = f" round {event.round}" if event.round is not None else ""
        if isinstance(event.data, ChatDelta):
            key = (event.round, event.data.channel, event.data.instance)
            if key not in published:
                published[key] = len(lines)
                lines.append(f"chat.delta{where} {event.data.marker} {event.data.channel}.{event.data.instance}: ")
            lines[published[key]] += event.data.text.replace("\n", "\\n")
            continue
        data = event.data.model_dump_json(exclude={"type"}, exclude_defaults=True)
        lines.append(f"{event.type}{where} {data}")
    return lines
