from collections.abc import Sequence
from dataclasses import replace

import pytest

from chat_proc.agent.opening import add_prune_notice, draft_opening
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.timeline.pruning import PrunePolicy
from chat_proc.turn.titling import TITLE_CHARS, make_title, title_source
from everturn.core.ids import ConversationId, SignalId, TurnId
from everturn.events.views import FileView
from everturn.feedback.model import Feedback, Reaction
from everturn.files.model import Artifact
from everturn.timeline.blocks import AttachmentTextBody, BlockType
from everturn.timeline.turns import ExternalEvent, RequestEvent, Turn, TurnRequest, TurnStatus
from everturn_testing.core import BEGINNING
from everturn_testing.events.scenarios import make_artifact
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import TimelineBuilder


def show(artifacts: Sequence[Artifact]) -> tuple[FileView, ...]:
    return ()


def build_turn(*attachments: Artifact, ordinal: int = 1) -> Turn:
    request = TurnRequest("Look at this.", attachments)
    return Turn(TurnId("turn_1"), ConversationId("conv_1"), ordinal, TurnStatus.RUNNING, 0, request, BEGINNING)


def store(objects: MemoryObjects, name: str, data: bytes, mime: str = "text/plain") -> Artifact:
    artifact = make_artifact(TurnId("turn_1"), name).model_copy(
        update={"size": len(data), "mime": mime, "object_key": f"conv/{name}"}
    )
    objects.stored[artifact.object_key] = data
    return artifact


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  Hello,\n Ann ", "Hello, Ann"),
        ("", "Untitled"),
        (" \n", "Untitled"),
        ("word " * 20, "word word word word word word word word word word word word…"),
        ("x" * 100, "x" * TITLE_CHARS + "…"),
        ("Run this:\n```python\nprint(42)\n```", "Run this"),
        ("```python\nprint(42)\n```", "python print(42)"),
    ],
)
def test_a_title_is_the_beginning_of_the_prompt_cut_at_a_word(text: str, title: str) -> None:
    assert make_title(text) == title


async def test_the_opening_is_header_prompt_and_attachments() -> None:
    objects = MemoryObjects()
    turn = build_turn(store(objects, "a.txt", b"note"))
    previews = await AttachmentReader(objects).load_previews(turn.request.attachments)

    drafts = draft_opening(turn, (), previews, "now", show).drafts

    assert [draft.type.value for draft in drafts] == [
        "turn.header",
        "user.prompt",
        "user.attachment.meta",
        "user.attachment.text",
    ]
    assert {draft.round for draft in drafts} == {0}


def test_feedback_precedes_the_prompt() -> None:
    given = Feedback(TurnId("turn_0"), "user", Reaction.OK, "nice", BEGINNING)

    drafts = draft_opening(build_turn(ordinal=2), (given,), {}, "now", show).drafts

    assert [draft.type.value for draft in drafts] == ["turn.header", "turn.feedback", "user.prompt"]
    assert drafts[1].body.model_dump()["reaction"] == "ok"


def test_a_prune_notice_follows_the_header_of_the_turn() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_0", "Go")
    timeline.start_round()
    timeline.result("call_1", "demo.echo", "word " * 1_000)
    timeline.start_turn("turn_00", "Go on")
    opening = draft_opening(build_turn(ordinal=2), (), {}, "2026-03-01T13:00:00.000Z", show)

    warm = add_prune_notice(opening, PrunePolicy(ttl_s=0), timeline.blocks)
    cold = add_prune_notice(opening, PrunePolicy(), timeline.blocks)

    assert warm == opening
    assert [draft.type.value for draft in cold.drafts[:3]] == ["turn.header", "system.message", "user.prompt"]


def test_events_follow_the_prompt_with_their_file_previews() -> None:
    file = make_artifact(TurnId("turn_1"), "a.csv")
    events = (
        RequestEvent(SignalId("sig_1"), "noted", ExternalEvent("alert", reactive=False)),
        RequestEvent(SignalId("sig_2"), "sent", ExternalEvent("form", {"total": 7}), (file,)),
    )
    turn = replace(build_turn(), request=TurnRequest("Hello", events=events))
    preview = AttachmentTextBody(filename="a.csv", text="a", total_chars=1)

    content = draft_opening(turn, (), {file.ref: preview}, "now", show)

    assert [draft.type for draft in content.drafts][-4:] == [
        BlockType.USER_PROMPT,
        BlockType.EXTERNAL_EVENT,
        BlockType.EXTERNAL_EVENT,
        BlockType.ATTACHMENT_TEXT,
    ]
    assert {draft.round for draft in content.drafts} == {0}
    assert content.signals == ()
    assert [getattr(event, "signal_id", "") for event, _ in content.after] == ["sig_1", "sig_2"]


def test_a_turn_of_events_alone_has_no_prompt_and_is_titled_by_them() -> None:
    request = TurnRequest("", events=(RequestEvent(SignalId("sig_1"), "", ExternalEvent("form")),))

    drafts = draft_opening(replace(build_turn(), request=request), (), {}, "now", show).drafts

    assert BlockType.USER_PROMPT not in [draft.type for draft in drafts]
    assert title_source(request) == "form"
    assert title_source(TurnRequest("Hi", events=request.events)) == "Hi"
