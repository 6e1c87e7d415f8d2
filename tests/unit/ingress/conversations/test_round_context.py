"""Which parts of a request a provider's cache could serve, and which texts can be rebuilt."""

import threading
from collections.abc import Sequence

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, TurnId
from everturn.files.model import manifest_key
from everturn.models.port import ToolDeclaration
from everturn.timeline.blocks import Block, BlockType
from everturn.timeline.forms import hash_text
from everturn.timeline.manifests import Manifest, ManifestSegment, Preamble, encode_tools
from everturn.timeline.rendering import render_block
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.timeline import TimelineBuilder
from ingress.conversations import round_context
from ingress.conversations.round_context import RoundContexts, judge_cache

ANN = Principal("acme", "support", "ann")
CONVERSATION = ConversationId("conv_01890a5d-ac96-774b-bcce-b302099a8057")
TURN = TurnId("turn_01890a5d-ac96-774b-bcce-b302099a8057")


def part(text: str, *, point: bool = False, seq: int = 0, form: str = "", origin: str = "block") -> ManifestSegment:
    return ManifestSegment.model_validate(
        {
            "origin": origin, "ref": "ar:x" if seq else "", "seq": seq, "form": form, "chars": len(text), "tokens": 1,
            "sha256": hash_text(text), "cache_point": point,
        }
    )  # fmt: skip


def test_the_common_prefix_is_read_up_to_the_older_cache_point() -> None:
    before = [part("system", point=True), part("a"), part("b", point=True), part("old announce")]
    now = [part("system", point=True), part("a"), part("b"), part("c", point=True), part("new announce")]

    assert judge_cache(now, before) == ["read", "read", "read", "write", "none"]


def test_a_part_that_changed_is_written_again_with_all_behind_it() -> None:
    before = [part("system", point=True), part("a"), part("b", point=True)]
    now = [part("system", point=True), part("hidden"), part("b", point=True)]

    assert judge_cache(now, before) == ["read", "write", "write"]


def test_without_a_request_before_nobody_knows() -> None:
    assert judge_cache([part("a", point=True), part("b")], None) == ["unknown", "none"]


def test_the_same_text_in_another_call_is_another_part() -> None:
    before = [part("system", point=True), part("{}").model_copy(update={"call_id": "call_1", "tool": "a"})]
    now = [part("system"), part("{}", point=True).model_copy(update={"call_id": "call_1", "tool": "b"})]

    assert judge_cache(now, before) == ["read", "write"]


class OneTurn:
    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks

    async def load_ordinal(self, *_: object) -> int:
        return 1

    async def load_blocks(self, _: Principal, __: ConversationId, seqs: Sequence[int]) -> tuple[Block, ...]:
        return tuple(block for block in self._blocks if block.seq in seqs)


@pytest.fixture
def prompt() -> Block:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "What is the total?")
    return next(block for block in timeline.blocks if block.type is BlockType.USER_PROMPT)


async def test_each_text_is_rebuilt_or_it_is_said_why_not(prompt: Block) -> None:
    whole = part(render_block(prompt), seq=prompt.seq, form="full")
    other = part("as another version wrote it", seq=prompt.seq, form="full")
    hidden = part("hidden", seq=prompt.seq, form="replaced")
    gone = part("gone", seq=99, form="full")
    media, system, tail = part("", origin="media"), part("lost", origin="system"), part("old", origin="tail")
    segments = (system, whole, other, hidden, gone, media, tail)
    manifest = Manifest(
        version=1, turn_id=TURN, round=1, model="m", sent_at="", max_output_tokens=1, tokens=1, segments=segments
    )
    objects = MemoryObjects()
    await objects.save(manifest_key(CONVERSATION, TURN, 1), manifest.model_dump_json().encode())

    contexts = RoundContexts(OneTurn([prompt]), objects)  # type: ignore[arg-type]
    shown = (await contexts.load(ANN, CONVERSATION, TURN, 1, cursor=None, limit=100)).segments

    assert [each.text for each in shown] == [None, render_block(prompt), None, None, None, None, None]
    assert [each.note for each in shown] == [
        "not kept",
        None,
        "it was rendered by a different version",
        "hidden by react.hide; the block can be read by its ref",
        "the block no longer exists",
        "the content of a file, which can be read by its ref",
        "not kept",
    ]


async def test_the_declared_tools_are_read_from_the_turn_that_stored_them() -> None:
    tools = encode_tools([ToolDeclaration("demo__echo", "Echoes.", {"type": "object"})])
    manifest = Manifest(
        version=1, turn_id=TURN, round=1, model="m", sent_at="", max_output_tokens=1, tokens=1,
        segments=(part(tools, origin="tools"), part("Be brief.", origin="system")), system_turn="turn_earlier",
    )  # fmt: skip
    objects = MemoryObjects()
    await objects.save(manifest_key(CONVERSATION, TURN, 1), manifest.model_dump_json().encode())
    preamble = Preamble(system="Be brief.", tools=tools)
    await objects.save(manifest_key(CONVERSATION, "turn_earlier", 0), preamble.model_dump_json().encode())

    contexts = RoundContexts(OneTurn([]), objects)  # type: ignore[arg-type]
    shown = (await contexts.load(ANN, CONVERSATION, TURN, 1, cursor=None, limit=100)).segments

    assert [each.text for each in shown] == [tools, "Be brief."]


async def test_a_call_has_the_arguments_that_the_model_wrote() -> None:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Count.")
    timeline.call("call_1", "exec_tools.run", {"goal": "count"}, code="print(1)")
    code, call = timeline.blocks[-2:]
    arguments = '{"goal": "count", "code": "print(1)"}'
    segment = part(arguments, seq=call.seq, form="written", origin="call").model_copy(
        update={"role": "assistant", "call_id": "call_1", "tool": "exec_tools__run", "code_seq": code.seq}
    )
    manifest = Manifest(
        version=1, turn_id=TURN, round=1, model="m", sent_at="", max_output_tokens=1, tokens=1, segments=(segment,)
    )
    objects = MemoryObjects()
    await objects.save(manifest_key(CONVERSATION, TURN, 1), manifest.model_dump_json().encode())

    contexts = RoundContexts(OneTurn(timeline.blocks), objects)  # type: ignore[arg-type]
    (shown,) = (await contexts.load(ANN, CONVERSATION, TURN, 1, cursor=None, limit=100)).segments

    assert (shown.text, shown.note) == (arguments, None)
    assert (shown.role, shown.call_id, shown.tool) == ("assistant", "call_1", "exec_tools__run")


async def test_a_round_is_read_and_rebuilt_beside_the_event_loop(
    prompt: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: dict[str, bool] = {}

    def replace_with_noted(name: str) -> None:
        function = getattr(round_context, name)

        def call_and_note(*args: object) -> object:
            on_loop[name] = threading.current_thread() is threading.main_thread()
            return function(*args)

        monkeypatch.setattr(round_context, name, call_and_note)

    for name in ("judge_cache", "try_rebuild_text"):
        replace_with_noted(name)
    segments = (part(render_block(prompt), seq=prompt.seq, form="full"),)
    objects = MemoryObjects()
    for number in (1, 2):
        manifest = Manifest(
            version=1, turn_id=TURN, round=number, model="m", sent_at="", max_output_tokens=1, tokens=1,
            segments=segments,
        )  # fmt: skip
        await objects.save(manifest_key(CONVERSATION, TURN, number), manifest.model_dump_json().encode())

    contexts = RoundContexts(OneTurn([prompt]), objects)  # type: ignore[arg-type]
    await contexts.load(ANN, CONVERSATION, TURN, 2, cursor=None, limit=100)

    assert on_loop == {"judge_cache": False, "try_rebuild_text": False}
