"""The calls that the documents show, made on the real tools in whole turns."""

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.seed_calls import build_bench, make_call, read_call
from turn_harness.tools import FindTool

from everturn.core.refs import file_ref, turn_index_ref, working_summary_ref
from everturn.models.port import TextPart
from everturn.timeline.blocks import AnchorBody, BlockType, CheckoutBody, PlanBody


async def begin(*scripts: str) -> Bench:
    """A first turn that plays these replies."""
    bench = build_bench(*scripts, more=[FindTool()])
    await bench.say("Begin.")
    await bench.work()
    return bench


async def with_sources(count: int) -> Bench:
    urls = [f"https://a.example/{n}" for n in range(1, count + 1)]
    return await begin(call("demo.find", {"urls": urls}), answer("Found."))


async def with_config() -> tuple[Bench, str]:
    """A first turn that wrote `files/config.yaml`; its id."""
    write = call("react.write", {"path": "files/config.yaml", "channel": "internal", "content": "port: 8080\n"})
    bench = await begin(write, answer("Written.", summary="Goal: a configuration. Refs: files/config.yaml"))
    return bench, bench.turn_rows[0].id


def last_request(bench: Bench) -> str:
    parts = [part for message in bench.model.requests[-1].messages for part in message.parts]
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


@pytest.mark.parametrize(
    ("written", "sids"),
    [
        ('react.read(["so:sources_pool[1-5]"])', [1, 2, 3, 4, 5]),
        ('react.read(["so:sources_pool[1,3,7]"])', [1, 3, 7]),
    ],
)
async def test_sources_are_loaded_by_range_and_by_list(written: str, sids: list[int]) -> None:
    bench = await with_sources(7)

    result = await make_call(bench, written)

    assert result.status == "ok"
    for sid in range(1, 8):
        assert (f"Text of https://a.example/{sid}" in result.text) is (sid in sids)
    await check_conversation(bench)


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ('react.read(["so:sources_pool[3-1]"])', "ok"),
        ('react.read(["so:sources_pool[1-2,2,1]"])', "ok"),
        ('react.read(["so:sources_pool[one]"])', "error"),
        ('react.read(["so:sources_pool[]"])', "error"),
        ('react.read(["so:sources_pool[90-99]"])', "error"),
    ],
)
async def test_reversed_and_overlapping_selectors_are_accepted(written: str, status: str) -> None:
    bench = await with_sources(3)

    result = await make_call(bench, written)

    assert result.status == status, result.text


async def test_in_an_empty_pool_there_is_nothing_to_load() -> None:
    bench = await begin(answer("Hello."))

    result = await make_call(bench, 'react.read(["so:sources_pool[1-5]"])')

    assert result.status == "error"
    await check_conversation(bench)


async def test_the_whole_content_of_a_file_is_restored_by_its_ref() -> None:
    bench, turn = await with_config()

    result = await make_call(bench, 'react.read(["fi:turn_123.files/config.yaml"])'.replace("turn_123", turn))

    assert result.status == "ok" and "port: 8080" in result.text


async def test_summary_and_turn_index_are_read_by_their_refs() -> None:
    bench, turn = await with_config()
    names = {"ws_path": working_summary_ref(turn), "summary_path": working_summary_ref(turn), "turn_id": turn}

    for written in ("react.read([ws_path])", "react.read([summary_path])"):
        assert (await make_call(bench, written, names)).status == "ok"
    index = await make_call(bench, 'react.read(["ar:<turn_id>.react.turn.index"])', names)
    several = await make_call(bench, "react.read([index, file, ...])", {
        "index": turn_index_ref(turn), "file": file_ref(turn, "config.yaml")
    })  # fmt: skip

    assert "config.yaml" in index.text
    assert several.status == "ok" and "port: 8080" in several.text


@pytest.mark.parametrize(
    "written", ["react.pull(paths=[fi_path])", "react.pull([fi_path])", "react.pull([fi_path, ...])"]
)
async def test_a_historical_file_is_pulled(written: str) -> None:
    bench, turn = await with_config()

    result = await make_call(bench, written, {"fi_path": file_ref(turn, "config.yaml")})

    assert result.status == "ok" and f"{turn}/files/config.yaml" in result.text
    await check_conversation(bench)


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ('react.checkout(mode="replace", paths=["fi:<turn>.files/config.yaml"])', "replace"),
        ('react.checkout(mode="overlay", paths=["fi:<turn>.files/config.yaml"])', "overlay"),
        ("react.checkout(version=turn)", "replace"),
    ],
)
async def test_a_workspace_is_checked_out(written: str, mode: str) -> None:
    bench, turn = await with_config()

    result = await make_call(bench, written, {"turn": turn})

    assert result.status == "ok", result.text
    (body,) = [block.body for block in bench.blocks if isinstance(block.body, CheckoutBody)]
    assert (body.mode, [copy.path.rpartition("/")[2] for copy in body.artifacts]) == (mode, ["config.yaml"])
    await check_conversation(bench)


PLAN = 'react.plan(mode="new", steps=["collect metrics", "compare trends", "draft answer"])'


async def test_a_plan_is_made_shown_in_announce_and_read_by_its_alias() -> None:
    bench = await begin(answer("Hello."))

    result = await make_call(bench, PLAN)

    assert result.status == "ok"
    (plan,) = [block.body.plan for block in bench.blocks if isinstance(block.body, PlanBody)]
    announced = last_request(bench).partition("[OPEN PLANS]")[2]
    assert f"{plan.plan_id}" in announced and "(current)" in announced
    for n, label in enumerate(["collect metrics", "compare trends", "draft answer"], start=1):
        assert f"□ [{n}] {label}" in announced
    again = await make_call(bench, 'react.read(["ar:plan.latest:<plan_id>"])', {"plan_id": plan.plan_id})
    assert again.status == "ok"


async def test_the_four_marks_report_progress_in_notes() -> None:
    steps = ["a", "b", "c", "d"]
    notes = "✓ [1] done\n✗ [2] failed\n… [3] at it\n□ [4] not yet"
    bench = await begin(
        call("react.plan", {"mode": "new", "steps": steps}),
        call("demo.find", {"urls": []}, notes=notes),
        answer("So far."),
    )

    plan = [block.body.plan for block in bench.blocks if isinstance(block.body, PlanBody)][-1]

    assert [step.status.value for step in plan.steps] == ["done", "failed", "in_progress", "pending"]


async def test_a_plan_snapshot_is_a_block_at_its_path() -> None:
    bench = await begin(answer("Hello."))
    await make_call(bench, PLAN)

    (block,) = [block for block in bench.blocks if isinstance(block.body, PlanBody)]

    assert isinstance(block.body, PlanBody)
    assert block.type is BlockType.PLAN
    assert block.ref == f"ar:{block.turn_id}.react.plan.{block.body.plan.plan_id}"
    assert block.body.plan.origin_turn_id == block.turn_id
    first = block.body.plan.steps[0]
    assert (first.n, first.label) == (1, "collect metrics")


@pytest.mark.parametrize("mode", ["activate", "replace", "close"])
async def test_the_lifecycle_of_a_plan_is_a_call_too(mode: str) -> None:
    bench = await begin(answer("Hello."))
    await make_call(bench, PLAN)
    (plan,) = [block.body.plan for block in bench.blocks if isinstance(block.body, PlanBody)]
    steps = ', steps=["start over"]' if mode == "replace" else ""

    result = await make_call(bench, f'react.plan(mode="{mode}", plan_id=plan_id{steps})', {"plan_id": plan.plan_id})

    assert result.status == "ok", result.text


@pytest.mark.parametrize(
    ("written", "anchors"),
    [
        ('react.write(path="files/notes.md", channel="internal", content=text)', 0),
        ('react.write(path="files/notes.md", channel="internal", scratchpad=True, content=text)', 1),
    ],
)
async def test_an_internal_note_becomes_an_anchor_when_it_is_scratchpad(written: str, anchors: int) -> None:
    bench = await begin(answer("Hello."))

    result = await make_call(bench, written, {"text": "[D] The port is 8080."})

    assert result.status == "ok", result.text
    assert sum(isinstance(block.body, AnchorBody) for block in bench.blocks) == anchors


def test_a_written_call_is_read_with_its_positional_parameters() -> None:
    bench = build_bench()

    assert read_call(bench, "react.read([path])", {"path": "ar:x"}) == ("react.read", {"paths": ["ar:x"]})


async def test_the_blocks_of_a_turn_are_in_the_documented_order() -> None:
    bench = await begin(
        call("react.plan", {"mode": "new", "steps": ["gather sources", "draft report"]}),
        call("demo.find", {"urls": ["https://a.example/1"]}, notes="✓ [1] gathered"),
        answer("Drafted [[S:1]]."),
    )

    wanted = [
        "user.prompt",
        "react.tool.call",
        "react.tool.result",
        "react.plan",
        "react.plan.ack",
        "assistant.completion",
    ]
    types = [block.type.value for block in bench.blocks]

    assert [kind for kind in dict.fromkeys(types) if kind in wanted] == wanted
