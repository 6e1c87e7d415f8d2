"""The played worker keeps the rules of the real one."""

from everturn.events.cursor import ORIGIN, try_parse_cursor
from everturn.timeline import bodies
from everturn.timeline.blocks import first_broken_link
from everturn.timeline.turns import Outcome
from everturn_testing.events.stories import Story


def test_ids_only_grow_also_over_a_lost_worker_and_the_chain_holds() -> None:
    story = Story()
    story.start_turn("Hello")
    story.start_round()
    story.stream("thinking", 0, ["H", "m"])
    story.lose_worker()
    story.start_round()
    story.add(bodies.ThinkingBody(text=story.stream("thinking", 0, ["Hm"])))
    story.end_turn(Outcome.COMPLETED)

    cursors = [try_parse_cursor(event.id or "") or ORIGIN for event in story.events]

    assert cursors == sorted(set(cursors))
    assert first_broken_link(story.records[0].blocks) is None
    assert [event.type for event in story.events].count("chat.rewind") == 1
