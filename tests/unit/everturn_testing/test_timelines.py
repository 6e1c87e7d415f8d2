"""The timeline builder gives what the runtime would: an unbroken chain with refs that parse."""

from everturn.core.refs import parse_ref
from everturn_testing.timeline import TimelineBuilder, build_file, first_broken_link


def test_a_built_timeline_is_chained_and_its_refs_parse() -> None:
    timeline = TimelineBuilder()

    timeline.start_turn("turn_1", "Hello", build_file("turn_1", "a.csv", b"a,b"))
    timeline.start_round()
    timeline.think("hm")
    timeline.call("call_1", "react.read", {"paths": []}, code="print(1)")
    timeline.result("call_1", "react.read", "nothing")
    timeline.say("followup", "sig_1", "more")
    timeline.answer("done")

    assert first_broken_link(timeline.blocks) is None
    assert [str(parse_ref(block.ref)) for block in timeline.blocks] == [block.ref for block in timeline.blocks]
