"""The web client folds events into the same states as we do: after each event of streams of all kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tales.telling import TurnScript, empty, play, read, tales

from everturn.events import model as events
from everturn.events.fold import fold_event
from everturn.events.model import Envelope, encode_envelope, parse_envelope
from everturn.events.views import StateView
from everturn_local.web.client import WebClient
from everturn_testing.events.stories import Story

STORIES = 40


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    """The same ones each time."""
    stories: list[Story] = []

    @settings(max_examples=STORIES, derandomize=True, database=None)
    @given(tale=tales)
    def collect(tale: list[TurnScript]) -> None:
        stories.append(play(tale))

    collect()
    return stories


async def test_the_web_client_folds_every_stream_as_we_do(
    web_client: WebClient, stories: list[Story], tmp_path: Path
) -> None:
    file = tmp_path / "streams.json"
    file.write_text(json.dumps([build_states(story) for story in stories]))

    stories = await web_client.test("src/api/fold/fold.test.ts", env={"FOLD_STREAMS": str(file)})

    assert len(stories) >= STORIES
    assert "skipped" not in stories


def build_states(story: Story) -> dict[str, Any]:
    """The state before the stream and after each event: in order, again from its middle, a snapshot, and all again."""
    title = address(story, events.ConvTitle(title="Trams"), "1-3")
    page = story.pages[len(story.pages) // 2]
    snapshot = address(story, events.StreamSnapshot(state=read(page)), None)
    half = len(story.events) // 2
    state, steps = empty(story), list[dict[str, Any]]()
    for event in (title, *story.events, *story.events[half:], snapshot, *story.events):
        encoded = encode_envelope(event)
        state = fold_event(state, parse_envelope(encoded))
        steps.append({"event": json.loads(encoded), "after": dump(state)})
    return {"before": dump(empty(story)), "steps": steps}


def address(story: Story, data: events.AnyEvent, event_id: str | None) -> Envelope:
    turn_id = story.records[-1].turn.id
    return Envelope(
        id=event_id, type=data.type, ts="", conversation_id=story.conversation.id, turn_id=turn_id, data=data
    )


def dump(state: StateView) -> Any:
    """As it goes over the wire: what is null is not there."""
    return json.loads(state.model_dump_json(exclude_none=True))
