from turn_bench.bench import Bench
from turn_bench.replies import answer, call
from turn_bench.tools import DemoTool

from everturn.model.llm.prompts import ModelRequest, TextPart


def texts(request: ModelRequest) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)]


async def test_a_request_is_the_timeline_and_then_the_present() -> None:
    bench = Bench(call("demo.echo", {"text": "x"}), answer("Done."), tools=[DemoTool()])
    await bench.say("Hello.")

    await bench.work()

    first, second = (texts(request) for request in bench.model.requests)
    assert "Iteration 1/15" in first[-1]
    assert "Iteration 2/15" in second[-1]
    assert "tokens: 120 of" in second[-1]
    assert second[: len(first) - 1] == first[:-1]


async def test_each_request_bounds_the_reply() -> None:
    bench = Bench(answer("Done."))
    await bench.say("Hello.")

    await bench.work()

    assert bench.model.requests[0].max_output_tokens == bench.limits.max_output_tokens
