"""The documents of a conversation are built from its rows, and name what its answers cite."""

import json

from everturn.events.materialized import DerivedArtifacts, build_derived_artifacts
from everturn.timeline.blocks import ThinkingBody
from everturn.timeline.sources import Source
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import Scenario


def tell() -> Scenario:
    scenario = Scenario()
    scenario.start_turn("Is it?")
    scenario.start_round()
    scenario.add(ThinkingBody(text="Hm."))
    scenario.answer("So it is [[S:2]].", (2,))
    scenario.end_turn(Outcome.COMPLETED)
    return scenario


def test_the_timeline_holds_the_blocks_as_they_are_stored_and_the_pool() -> None:
    scenario = tell()
    row = Source(
        2, "Two", "https://a.example/2", text="The beginning", mime="text/html", text_chars=900, used=True, key="k"
    )

    timeline = build_derived_artifacts(scenario.page, [row]).timeline

    blocks = scenario.records[0].blocks
    assert [(view.seq, view.path, view.hash) for view in timeline.blocks] == [(b.seq, b.ref, b.hash) for b in blocks]
    assert [view.body for view in timeline.blocks] == [json.loads(block.body_json) for block in blocks]
    assert timeline.turn_ids == (scenario.records[0].turn.id,)
    (source,) = timeline.sources_pool
    assert (source.sid, source.text, source.text_chars, source.used) == (2, "The beginning", 900, True)


def test_a_turn_log_names_the_sources_that_were_cited_and_the_tokens() -> None:
    scenario = tell()

    (log,) = build_derived_artifacts(scenario.page, []).turn_log

    assert (log.first_seq, log.blocks_count, log.sources_used) == (1, len(scenario.records[0].blocks), (2,))
    assert log.end_ts is not None


def test_the_documents_have_the_names_that_clients_know() -> None:
    dumped = build_derived_artifacts(tell().page, []).model_dump(by_alias=True)

    assert set(dumped) == {"conv.timeline.v1", "turn.log"} != set(DerivedArtifacts.model_fields)


def test_a_turn_that_has_not_begun_has_an_empty_log() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    waiting = scenario.page.turns[0]
    page = type(scenario.page)(
        scenario.page.conversation, (type(waiting)(waiting.turn, ()),), scenario.page.cursor, None
    )

    (log,) = build_derived_artifacts(page, []).turn_log

    assert (log.first_seq, log.last_seq, log.blocks_count, log.tokens) == (None, None, 0, 0)
