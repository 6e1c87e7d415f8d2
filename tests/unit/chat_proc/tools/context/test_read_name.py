"""All spellings of a name mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.tools.context.resolve import Named, read_name
from everturn.core.errors import Invalid
from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import parse_ref

HERE = (ConversationId("conv_1"), TurnId("turn_9"))


@pytest.mark.parametrize(
    ("spelling", "ref"),
    [
        ("ar:turn_1.user.prompt", "ar:turn_1.user.prompt"),
        ("ar:conv_1.turn_1.user.prompt", "ar:turn_1.user.prompt"),
        ("turn_1/files/a/b.md", "fi:turn_1.files/a/b.md"),
        ("conv_1/turn_1/files/a/b.md", "fi:turn_1.files/a/b.md"),
        ("files/a/b.md", "fi:turn_9.files/a/b.md"),
        ("outputs/c.png", "fi:turn_9.outputs/c.png"),
        ("attachments/d.csv", "fi:turn_9.user.attachments/d.csv"),
        ("logs/run.txt", "fi:turn_9.logs/run.txt"),
        ("turn_1/external/steer/attachments/sig_1/e.csv", "fi:turn_1.external.steer.attachments/sig_1/e.csv"),
        ("so:conv_1.sources_pool[3, 1-2]", "so:sources_pool[1-3]"),
        ("so:sources_pool[5-3,4-7,1]", "so:sources_pool[1,3-7]"),
        ("ar:turn_1.artifacts.summary", "ws:turn_1.conv.working.summary"),
        ("sk:public.pdf-press", "sk:public.pdf-press/SKILL.md"),
        ("sk:public.pdf-press/", "sk:public.pdf-press/SKILL.md"),
        ("sk:public.pdf-press/scripts/report.py", "sk:public.pdf-press/scripts/report.py"),
    ],
)
def test_a_ref_of_this_conversation_omits_its_id(spelling: str, ref: str) -> None:
    named = read_name(spelling, *HERE)

    assert named == Named(parse_ref(ref))
    assert named.shown == ref


@pytest.mark.parametrize(
    ("spelling", "ref"),
    [
        ("ar:conv_2.turn_1.user.prompt", "ar:turn_1.user.prompt"),
        ("conv_2/turn_1/outputs/c.png", "fi:turn_1.outputs/c.png"),
    ],
)
def test_a_ref_of_another_conversation_includes_its_id(spelling: str, ref: str) -> None:
    named = read_name(spelling, *HERE)

    assert named == Named(parse_ref(ref), ConversationId("conv_2"))
    assert read_name(named.shown, *HERE) == named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "/etc/passwd",
        "files/../a",
        "files//a",
        "turn_1/secrets/a",
        "../x",
        "ar:conv_a.b.turn_1.user.prompt",
        "ar:conv_a/b.turn_1.user.prompt",
        "ar:telegram_turn_1.user.prompt",
        "ar:2026-03-01-12-00.user.prompt",
    ],
)
def test_an_invalid_name_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Invalid):
        read_name(text, *HERE)


PARTS = st.text(st.sampled_from("ab é.-_ "), min_size=1, max_size=6).filter(lambda part: part.strip(". ") == part)


@given(turn=st.sampled_from(["turn_1", "turn_a-b"]), path=st.lists(PARTS, min_size=1, max_size=3).map("/".join))
def test_a_path_and_its_ref_mean_the_same_file(turn: str, path: str) -> None:
    named = read_name(f"{turn}/files/{path}", *HERE)

    assert read_name(named.shown, *HERE) == named
    assert read_name(f"fi:conv_1.{turn}.files/{path}", *HERE) == named
