"""The played worker keeps the rules of the real one."""

from everturn.events.cursor import ORIGIN, try_parse_cursor
from everturn.timeline.blocks import ThinkingBody
from everturn.timeline.turns import Outcome
from everturn_testing.events.scenarios import Scenario
from everturn_testing.timeline import first_broken_link


def test_ids_only_grow_also_over_a_lost_worker_and_the_chain_holds() -> None:
    scenario = Scenario()
    scenario.start_turn("Hello")
    scenario.start_round()
    scenario.stream("thinking", 0, ["H", "m"])
    scenario.lose_worker()
    scenario.start_round()
    scenario.add(ThinkingBody(text=scenario.stream("thinking", 0, ["Hm"])))
    scenario.end_turn(Outcome.COMPLETED)

    cursors = [try_parse_cursor(event.id or "") or ORIGIN for event in scenario.events]

    assert cursors == sorted(set(cursors))
    assert first_broken_link(scenario.records[0].blocks) is None
    assert [event.type for event in scenario.events].count("chat.rewind") == 1
