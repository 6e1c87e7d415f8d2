"""Long results: stored whole, shown in short, read back in parts."""

import hashlib
import json

from turn_harness.checks import check_conversation
from turn_harness.harness import Bench
from turn_harness.replies import answer, call
from turn_harness.tools import TextParams

from chat_proc.agent import tool_calls as long_results
from chat_proc.catalog.tool import PREVIEW_CHARS, ToolCall, ToolOutcome, ToolSpec
from everturn.core.refs import result_ref
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import ToolResultBody
from everturn.turns.model import Effect
from everturn_testing.core import SequentialIds


class TellTool:
    """Gives one text."""

    def __init__(self, text: str, *, result_chars: int = PREVIEW_CHARS) -> None:
        self.text = text
        self.spec = ToolSpec("demo.report", "Reports.", "", TextParams, Effect.PURE, result_chars=result_chars)

    async def run(self, call: ToolCall) -> ToolOutcome:
        return ToolOutcome("ok", self.text)


async def play(tool: TellTool) -> tuple[Bench, ToolResultBody]:
    bench = Bench(call("demo.report", {}), answer("Done."), tools=[tool])
    await bench.say("Hello.")
    await bench.work()
    await check_conversation(bench)
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    return bench, result


async def test_a_long_result_is_stored_whole_and_its_block_holds_a_preview() -> None:
    text = json.dumps([{"name": f"row {n}", "value": n} for n in range(20_000)])

    bench, result = await play(TellTool(text))

    whole = result.whole
    assert whole is not None
    assert bench.objects.stored[whole.object_key].decode() == text
    assert (whole.chars, whole.bytes) == (len(text), len(text))
    assert len(result.text) < PREVIEW_CHARS + 500
    assert result.text.startswith(text[:1000])
    assert f"of {len(text)} characters" in result.text
    assert "list of 20000" in result.text
    assert '"path": "tc:' in result.text


async def test_the_row_of_the_object_is_committed_with_the_block() -> None:
    bench, result = await play(TellTool("x" * 20_000))

    (row,) = bench.platform.conversations[bench.conversation_id].artifacts
    assert (row.kind, row.visibility) == (ArtifactKind.RESULT, "internal")
    assert result.whole is not None
    assert row.object_key == result.whole.object_key
    assert result.artifacts == ()


async def test_a_short_result_is_kept_as_it_is() -> None:
    bench, result = await play(TellTool("x" * PREVIEW_CHARS))

    assert (result.text, result.whole) == ("x" * PREVIEW_CHARS, None)
    assert [key for key in bench.objects.stored if "/manifests/" not in key] == []


async def test_a_tool_that_bounds_its_results_itself_is_not_cut_again() -> None:
    _, result = await play(TellTool("x" * 20_000, result_chars=20_000))

    assert (result.text, result.whole) == ("x" * 20_000, None)


async def test_a_store_that_is_down_costs_the_rest_of_the_text_and_not_the_turn() -> None:
    bench = Bench(call("demo.report", {}), answer("Done."), tools=[TellTool("x" * 20_000)])
    bench.objects.down = True
    await bench.say("Hello.")
    await bench.work()

    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert (result.status, result.whole) == ("ok", None)
    assert "could not be stored and is lost" in result.text
    assert len(bench.exits) == 1


async def test_what_is_beyond_ten_megabytes_is_lost_and_the_preview_says_so() -> None:
    bench, result = await play(TellTool("é" * (long_results.MAX_STORED_BYTES // 2 + 10)))

    whole = result.whole
    assert whole is not None
    assert (whole.bytes, whole.chars) == (long_results.MAX_STORED_BYTES, long_results.MAX_STORED_BYTES // 2)
    assert len(bench.objects.stored[whole.object_key]) == whole.bytes
    assert f"The result had {whole.chars + 10} characters. Only the first {whole.chars} are stored" in result.text


async def test_a_character_that_no_encoding_takes_costs_nothing_else() -> None:
    bench, result = await play(TellTool("\ud800" + "x" * 20_000))

    assert result.whole is not None
    assert bench.objects.stored[result.whole.object_key] == b"?" + b"x" * 20_000


async def test_a_repeated_call_with_the_same_result_finds_the_object_there() -> None:
    one, first = await play(TellTool("x" * 20_000))
    two, second = await play(TellTool("x" * 20_000))

    assert first.whole == second.whole
    assert first.whole is not None
    assert first.whole.object_key.endswith(hashlib.sha256(b"x" * 20_000).hexdigest())
    assert one.objects.stored == two.objects.stored


async def test_the_model_reads_the_rest_by_the_ref_that_the_preview_gives() -> None:
    text = "".join(f"row {n}\n" for n in range(10_000))
    ids = SequentialIds()
    ref = result_ref(ids.turn(), ids.call())
    items = [{"path": ref, "offset": 50_000}, {"path": ref, "line_start": 9_999, "line_count": 1}]
    scripts = (call("demo.report", {}), answer("Done."), call("react.read", {"items": items}), answer("Read."))
    bench = Bench(*scripts, tools=[TellTool(text)])

    for prompt in ("Hello.", "Go on."):
        await bench.say(prompt)
        await bench.work()

    reported, read = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert f'"path": "{ref}"' in reported.text
    assert text[50_000:60_000] in read.text
    assert "9999: row 9998" in read.text
    assert read.whole is None
