"""The documents of a conversation are built from its rows, and name what its answers cite."""

import json

from everturn.events.materialized import DerivedArtifacts, build_derived_artifacts
from everturn.timeline import bodies
from everturn.timeline.sources import Source
from everturn.timeline.turns import Outcome
from everturn_testing.events.stories import Story


def tell() -> Story:
    story = Story()
    story.start_turn("Is it?")
    story.start_round()
    story.add(bodies.ThinkingBody(text="Hm."))
    story.answer("So it is [[S:2]].", (2,))
    story.end_turn(Outcome.COMPLETED)
    return story


def test_the_timeline_holds_the_blocks_as_they_are_stored_and_the_pool() -> None:
    story = tell()
    row = Source(
        2, "Two", "https://a.example/2", text="The beginning", mime="text/html", text_chars=900, used=True, key="k"
    )

    timeline = build_derived_artifacts(story.page, [row]).timeline

    blocks = story.records[0].blocks
    assert [(view.seq, view.path, view.hash) for view in timeline.blocks] == [(b.seq, b.ref, b.hash) for b in blocks]
    assert [view.body for view in timeline.blocks] == [json.loads(block.body_json) for block in blocks]
    assert timeline.turn_ids == (story.records[0].turn.id,)
    (source,) = timeline.sources_pool
    assert (source.sid, source.text, source.text_chars, source.used) == (2, "The beginning", 900, True)


def test_a_turn_log_names_the_sources_that_were_cited_and_the_tokens() -> None:
    story = tell()

    (log,) = build_derived_artifacts(story.page, []).turn_log

    assert (log.first_seq, log.blocks_count, log.sources_used) == (1, len(story.records[0].blocks), (2,))
    assert log.end_ts is not None


def test_the_documents_have_the_names_that_clients_know() -> None:
    dumped = build_derived_artifacts(tell().page, []).model_dump(by_alias=True)

    assert set(dumped) == {"conv.timeline.v1", "turn.log"} != set(DerivedArtifacts.model_fields)


def test_a_turn_that_has_not_begun_has_an_empty_log() -> None:
    story = Story()
    story.start_turn("Hello")
    waiting = story.page.turns[0]
    page = type(story.page)(story.page.conversation, (type(waiting)(waiting.turn, ()),), story.page.cursor, None)

    (log,) = build_derived_artifacts(page, []).turn_log

    assert (log.first_seq, log.last_seq, log.blocks_count, log.tokens) == (None, None, 0, 0)
