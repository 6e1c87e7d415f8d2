"""What a name means when it is to be hidden."""

from chat_proc.tools.context.hide import find_refs, find_shared
from chat_proc.tools.context.resolve import Named
from chat_proc.tools.context.seen import ShownText, build_shown_data
from everturn.core.ids import ConversationId
from everturn.core.refs import parse_ref
from everturn_testing.timeline import TimelineBuilder

A, B = ShownText(ref="fi:turn_1.files/a.md", digest="d1", part=True), ShownText(ref="so:sources_pool[1]", digest="d2")


def play() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Hello")
    timeline.start_round()
    timeline.result("call_1", "react.read", "a", data={"shown": build_shown_data([A])})
    timeline.result("call_2", "react.read", "a and b", data={"shown": build_shown_data([A, B])})
    timeline.answer("first", n=1)
    timeline.answer("second", n=2)
    return timeline


def test_a_block_has_its_own_ref() -> None:
    refs = find_refs(Named(parse_ref("ar:turn_1.user.prompt")), play().blocks)

    assert refs == {"ar:turn_1.user.prompt"}


def test_a_file_ref_hides_the_read_that_showed_only_that_file() -> None:
    refs = find_refs(Named(parse_ref(A.ref)), play().blocks)

    assert refs == {A.ref, "tc:turn_1.call_1.result"}


def test_a_file_that_is_shown_with_others_is_named_with_the_result() -> None:
    named, blocks = Named(parse_ref(B.ref)), play().blocks

    assert "tc:turn_1.call_2.result" not in find_refs(named, blocks)
    assert find_shared(named, blocks, {"tc:turn_1.call_2.result"}) == "tc:turn_1.call_2.result"
    assert find_shared(named, blocks, set()) is None


def test_an_answer_without_a_number_is_the_latest() -> None:
    named = Named(parse_ref("ar:turn_1.assistant.completion"))

    assert find_refs(named, play().blocks) == {"ar:turn_1.assistant.completion.2"}


def test_a_block_of_another_conversation_is_none_of_ours() -> None:
    named = Named(parse_ref("ar:turn_1.user.prompt"), ConversationId("conv_2"))

    assert find_refs(named, play().blocks) == set()
