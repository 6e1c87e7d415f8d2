"""The web client folds events into the same states as we do: after each event of streams of all kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.event_examples import TurnScript, empty, play, read, turn_scripts
from hypothesis import given, settings

from everturn.events import model as events
from everturn.events.fold import fold_event
from everturn.events.model import Envelope, encode_envelope, parse_envelope
from everturn.events.views import StateView
from everturn_local.web.client import WebClient
from everturn_testing.events.scenarios import Scenario

SCENARIOS = 40


@pytest.fixture(scope="module")
def scenarios() -> list[Scenario]:
    """The same ones each time."""
    scenarios: list[Scenario] = []

    @settings(max_examples=SCENARIOS, derandomize=True, database=None)
    @given(scripts=turn_scripts)
    def collect(scripts: list[TurnScript]) -> None:
        scenarios.append(play(scripts))

    collect()
    return scenarios


async def test_the_web_client_folds_every_stream_as_we_do(
    web_client: WebClient, scenarios: list[Scenario], tmp_path: Path
) -> None:
    file = tmp_path / "streams.json"
    file.write_text(json.dumps([build_states(scenario) for scenario in scenarios]))

    scenarios = await web_client.test("src/api/fold/fold.test.ts", env={"FOLD_STREAMS": str(file)})

    assert len(scenarios) >= SCENARIOS
    assert "skipped" not in scenarios


def build_states(scenario: Scenario) -> dict[str, Any]:
    """The state before the stream and after each event: in order, again from its middle, a snapshot, and all again."""
    title = address(scenario, events.ConvTitle(title="Trams"), "1-3")
    page = scenario.pages[len(scenario.pages) // 2]
    snapshot = address(scenario, events.StreamSnapshot(state=read(page)), None)
    half = len(scenario.events) // 2
    state, steps = empty(scenario), list[dict[str, Any]]()
    for event in (title, *scenario.events, *scenario.events[half:], snapshot, *scenario.events):
        encoded = encode_envelope(event)
        state = fold_event(state, parse_envelope(encoded))
        steps.append({"event": json.loads(encoded), "after": dump(state)})
    return {"before": dump(empty(scenario)), "steps": steps}


def address(scenario: Scenario, data: events.AnyEvent, event_id: str | None) -> Envelope:
    turn_id = scenario.records[-1].turn.id
    return Envelope(
        id=event_id, type=data.type, ts="", conversation_id=scenario.conversation.id, turn_id=turn_id, data=data
    )


def dump(state: StateView) -> Any:
    """As it goes over the wire: what is null is not there."""
    return json.loads(state.model_dump_json(exclude_none=True))
