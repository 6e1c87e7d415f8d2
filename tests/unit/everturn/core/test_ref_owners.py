"""Refs are stored without their own conversation and shown with it elsewhere; both spellings name the same thing."""

import pytest

from everturn.core.refs import localize_ref, owner_of, parse_ref, qualify_ref, qualify_text

LOCAL = [
    "ar:turn_1.user.prompt",
    "ar:turn_1.assistant.completion.2",
    "ar:turn_1.external.followup.sig_1",
    "ar:turn_1.react.notes.call_1",
    "ar:turn_1.react.plan.plan_a",
    "ar:turn_1.react.plan.ack.2",
    "ar:turn_1.react.turn.index",
    "ar:turn_1.artifacts.chart",
    "ar:turn_1.round.2.notice",
    "ar:plan.latest:plan_a",
    "tc:turn_1.call_1.call",
    "tc:turn_1.call_1.result",
    "fi:turn_1.files/a/b.md",
    "fi:turn_1.outputs/c.png",
    "fi:turn_1.user.attachments/d.csv",
    "fi:turn_1.external.steer.attachments/sig_1/e.csv",
    "fi:turn_1.logs/run.txt",
    "so:sources_pool[1-3]",
    "su:turn_1.conv.range.summary",
    "ws:turn_1.conv.working.summary",
]


@pytest.mark.parametrize("text", LOCAL)
def test_qualifying_is_undone_by_localizing(text: str) -> None:
    ref = parse_ref(text)

    there = qualify_ref(ref, "conv_2")

    assert owner_of(ref) is None
    assert owner_of(there) == "conv_2"
    assert parse_ref(str(there)) == there
    assert localize_ref(there, "conv_2") == ref


@pytest.mark.parametrize("text", LOCAL)
def test_qualifying_twice_changes_nothing_and_another_owner_stays(text: str) -> None:
    there = qualify_ref(parse_ref(text), "conv_2")

    assert qualify_ref(there, "conv_2") == there
    assert qualify_ref(there, "conv_3") == there


@pytest.mark.parametrize("text", LOCAL)
def test_localizing_takes_off_the_own_owner_only(text: str) -> None:
    there = qualify_ref(parse_ref(text), "conv_2")

    assert localize_ref(there, "conv_3") == there


@pytest.mark.parametrize("text", LOCAL)
def test_a_text_is_qualified_for_every_kind_of_ref_and_only_once(text: str) -> None:
    said = f"see {text}, and ({text})."
    there = str(qualify_ref(parse_ref(text), "conv_2"))

    qualified = qualify_text(said, "conv_2")

    assert qualified == f"see {there}, and ({there})."
    assert qualify_text(qualified, "conv_2") == qualified
    assert qualify_text(qualified, "conv_3") == qualified


@pytest.mark.parametrize("text", ["star:turn_1", "http://x/ar:turn_1", "ks:turn_1", "to:turn_1", "ar:conv_9.turn_1"])
def test_similar_text_is_not_a_ref(text: str) -> None:
    assert qualify_text(text, "conv_2") == text


def test_a_ref_that_belongs_to_no_conversation_is_the_same_everywhere() -> None:
    ref = parse_ref("sk:public.pdf-press/SKILL.md")

    assert qualify_ref(ref, "conv_2") == ref
    assert qualify_text(f"see {ref}", "conv_2") == f"see {ref}"
