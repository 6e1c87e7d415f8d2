"""Sources through whole turns: found by a tool, cited while streamed, published, and kept for the next turn."""

import asyncio

import pytest
from turn_harness.checks import check_conversation
from turn_harness.harness import ANN, Bench
from turn_harness.replies import answer, call, cut_answer
from turn_harness.tools import DemoTool, FindTool

from chat_proc.agent.kit import TurnLimits
from chat_proc.tools.web.client import AddressGuard, WebClient
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.web_fetch import WebFetchTool
from everturn.core.ids import TurnId
from everturn.events.model import ChatCitations, ChatDelta, ChatFollowups
from everturn.timeline.blocks import CompletionBody, ToolCallBody, ToolResultBody
from everturn.timeline.turns import SignalKind
from everturn_testing.web_site import Answer, open_site

A, B = "https://a.example/1", "https://b.example/2"
LINK = f"[Title of {A}]({A})"


def find(*urls: str) -> str:
    return call("demo.find", {"urls": list(urls)})


async def shown(bench: Bench, channel: str) -> str:
    data = [event.data for event in await bench.published()]
    return "".join(one.text for one in data if isinstance(one, ChatDelta) and one.channel == channel)


@pytest.mark.parametrize("chunk_chars", [1, 7, 1000])
async def test_a_citation_is_a_link_on_the_wire_and_a_token_on_the_timeline(chunk_chars: int) -> None:
    bench = Bench(find(A, B), answer("It is so [[S:1]]."), tools=[FindTool()], chunk_chars=chunk_chars)
    await bench.say("Is it?")

    await bench.work()

    await check_conversation(bench)
    (body,) = [block.body for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert (body.text, body.shown, body.sources_used) == ("It is so [[S:1]].", f"It is so {LINK}.", (1,))
    assert await shown(bench, "answer") == f"It is so {LINK}."
    assert bench.state().turns[0].answer == f"It is so {LINK}."


async def test_clients_and_rest_show_the_same_citations() -> None:
    bench = Bench(find(A, B), answer("So [[S:2]] [[S:9]].", followups=("And then?",)), tools=[FindTool()])
    await bench.say("Is it?")

    await bench.work()

    await check_conversation(bench)
    events = [event.data for event in await bench.published()]
    (published,) = [data for data in events if isinstance(data, ChatCitations)]
    assert [(cited.sid, cited.url) for cited in published.sources] == [(2, B)]
    assert [data.items for data in events if isinstance(data, ChatFollowups)] == [("And then?",)]
    (turn,) = bench.state().turns
    assert (turn.citations, turn.sources_used, turn.followups) == (published.sources, (2,), ("And then?",))


async def test_a_source_of_the_first_turn_has_its_number_in_the_twelfth() -> None:
    bench = Bench(
        find(A), answer("One [[S:1]]."), *[answer("Hm.") for _ in range(10)],
        find(B, A + "#again"), answer("Both [[S:1-2]]."), tools=[FindTool()],
    )  # fmt: skip
    for n in range(12):
        await bench.say(f"Turn {n}")
        await bench.work()

    await check_conversation(bench)
    assert bench.texts(CompletionBody)[-1] == "Both [[S:1-2]]."
    assert [cited.url for cited in bench.state().turns[-1].citations] == [A, B]


async def test_what_is_cited_is_marked_as_used() -> None:
    bench = Bench(find(A, B), answer("So [[S:2]]."), tools=[FindTool()])
    await bench.say("Is it?")

    await bench.work()

    rows = await bench.workers[-1].timelines.load_sources(ANN, bench.conversation_id)
    assert [(row.sid, row.used) for row in rows] == [(1, False), (2, True)]


async def test_a_worker_that_takes_over_finds_the_sources_that_were_committed() -> None:
    bench = Bench(find(A), find(B, A), answer("So [[S:1,2]]."), tools=[FindTool()])
    await bench.say("Is it?")
    await bench.hire(failpoint="turn.before_c2:2:raise").work()
    bench.expire_lease()

    await bench.work()

    await check_conversation(bench, ends_may_repeat=True)
    assert [cited.url for cited in bench.state().turns[0].citations] == [A, B]


async def test_sources_of_a_call_that_failed_are_kept_with_its_result() -> None:
    tool = FindTool()
    tool.error = RuntimeError("broke off")
    bench = Bench(find(A), answer("So [[S:1]]."), tools=[tool])
    await bench.say("Is it?")

    await bench.work()

    await check_conversation(bench)
    assert [cited.url for cited in bench.state().turns[0].citations] == [A]


@pytest.mark.parametrize("chunk_chars", [1, 5, 1000])
@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("files/a.md", LINK),
        ("files/a.txt", LINK),
        ("files/a.html", f'<sup class="cite" data-sids="1"><a href="{A}" title="Title of {A}" target="_blank" '
                         'rel="noopener noreferrer">1</a></sup>'),
        ("files/a.json", "[[S:1]]"),
    ],
)  # fmt: skip
async def test_a_written_file_is_stored_with_its_citation_tokens(path: str, link: str, chunk_chars: int) -> None:
    write = call("react.write", {"path": path, "channel": "canvas", "kind": "file", "content": "See [[S:1]]"})
    bench = Bench(find(A), write, answer("Done."), tools=[FindTool()], chunk_chars=chunk_chars)
    await bench.say("Write it.")

    await bench.work()

    await check_conversation(bench)
    assert await shown(bench, "canvas") == f"See {link}"
    assert [text.text for text in bench.state().turns[0].texts if text.channel == "canvas"] == [f"See {link}"]
    (body,) = [body for body in call_bodies(bench) if body.tool_id == "react.write"]
    assert body.params["content"] == "See [[S:1]]"
    assert not any(event.type == "chat.rewind" for event in await bench.published())


async def test_content_that_came_before_its_path_is_cited_too() -> None:
    write = call("react.write", {"content": "See [[S:1]]", "channel": "timeline_text", "path": "files/a.md"})
    bench = Bench(find(A), write, answer("Done."), tools=[FindTool()])
    await bench.say("Write it.")

    await bench.work()

    await check_conversation(bench)
    assert [text.text for text in bench.state().turns[0].texts if text.channel == "timeline_text"] == [f"See {LINK}"]


async def test_an_answer_of_the_closing_call_is_cited_however_it_comes() -> None:
    for reply in (answer("So [[S:1]]."), "So [[S:1]]."):
        bench = Bench(find(A), find(B), reply, tools=[FindTool()], limits=TurnLimits(rounds=2))
        await bench.say("Is it?")

        await bench.work()

        await check_conversation(bench)
        (turn,) = bench.state().turns
        assert (turn.answer, turn.outcome, turn.sources_used) == (f"So {LINK}.", "capped", (1,))
        assert [cited.sid for cited in turn.citations] == [1]


async def test_an_answer_that_is_kept_after_a_cancel_keeps_what_it_cites() -> None:
    tool = DemoTool()
    bench = Bench(find(A), cut_answer("So [[S:1]], and m"), tools=[FindTool(), tool])
    await bench.say("Is it?")

    await bench.work()

    await check_conversation(bench)
    (turn,) = bench.state().turns
    assert (turn.answer, turn.sources_used) == (f"So {LINK}, and m", (1,))


async def test_two_answers_of_one_turn_are_cited_together() -> None:
    find_tool = FindTool()
    bench = Bench(find(A, B), answer("One [[S:1]]."), answer("Two [[S:2]]."), tools=[find_tool])
    await bench.say("Is it?")
    bench.hire(failpoint="")
    worker = bench.workers[-1]
    worker.timelines.before_commit = once(bench, "And more?")

    await worker.work()

    await check_conversation(bench)
    assert [cited.sid for turn in bench.state().turns for cited in turn.citations] == [1, 2]


def once(bench: Bench, text: str):
    said: list[str] = []

    async def say(commit) -> None:
        if commit.close is not None and not said:
            said.append(text)
            await bench.signal(SignalKind.FOLLOWUP, text)

    return say


def call_bodies(bench: Bench) -> list[ToolCallBody]:
    return [block.body for block in bench.blocks if isinstance(block.body, ToolCallBody)]


@pytest.mark.parametrize("chunk_chars", [13, 97, 100_000])
async def test_three_files_of_one_reply_stream_with_their_citations(chunk_chars: int) -> None:
    writes = [
        call("react.write", {"path": f"files/{n}.md", "channel": "canvas", "content": f"File {n}: `x` [[S:1]] end"})
        for n in range(3)
    ]
    bench = Bench(find(A), "".join(writes), answer("Done."), tools=[FindTool()], chunk_chars=chunk_chars, fanout=True)
    await bench.say("Write three.")

    await bench.work()

    await check_conversation(bench)
    deltas = [event.data for event in await bench.published() if isinstance(event.data, ChatDelta)]
    canvas = [data for data in deltas if data.channel == "canvas"]
    assert sorted({data.instance for data in canvas}) == [0, 1, 2]
    for n in range(3):
        own = [data for data in canvas if data.instance == n]
        assert "".join(data.text for data in own) == f"File {n}: `x` {LINK} end"
        assert own[-1].completed and {data.artifact for data in own} == {f"files/{n}.md"}


async def test_internal_content_is_not_shown() -> None:
    write = call("react.write", {"path": "files/a.md", "channel": "internal", "content": "Mine: [[S:1]]"})
    bench = Bench(find(A), write, answer("Done."), tools=[FindTool()])
    await bench.say("Think.")

    await bench.work()

    await check_conversation(bench)
    assert not any("Mine" in text.text for text in bench.state().turns[0].texts)
    assert "Mine" not in "".join([await shown(bench, channel) for channel in ("canvas", "timeline_text", "internal")])


async def test_a_written_file_marks_what_it_cites_as_used() -> None:
    write = call("react.write", {"path": "files/a.md", "channel": "canvas", "content": "See [[S:2]]"})
    bench = Bench(find(A, B), write, answer("Done."), tools=[FindTool()])
    await bench.say("Write it.")

    await bench.work()

    rows = await bench.workers[-1].timelines.load_sources(ANN, bench.conversation_id)
    assert [(row.sid, row.used) for row in rows] == [(1, False), (2, True)]


async def test_a_steer_cancels_a_page_that_is_being_fetched() -> None:
    async with open_site() as site:
        site.pages["/slow"] = Answer(b"some", stalls=True)

        async def resolve(host: str, port: int, turn_id: TurnId) -> list[str]:
            return ["127.0.0.1"]

        guard = AddressGuard(resolve, is_allowed=lambda address: True, ports={site.port})
        fetch = call("web_tools.web_fetch", {"urls": [site.url("/slow")]})
        bench = Bench(fetch, answer("Never mind."), tools=[WebFetchTool(WebClient(guard), PageReader())])
        await bench.say(f"Read {site.url('/slow')}.")
        working = asyncio.create_task(bench.work())
        await site.was_asked.wait()

        await bench.signal(SignalKind.STEER, "Leave it.")
        async with asyncio.timeout(5):
            await working

    await check_conversation(bench)
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == "cancelled"
    assert bench.state().turns[0].answer == "Never mind."


async def test_a_page_is_fetched_cited_and_read_again_in_one_turn() -> None:
    async with open_site() as site:
        url = site.page("/tides.txt", "The tide comes twice a day. " * 600, "text/plain")

        async def resolve(host: str, port: int, turn_id: TurnId) -> list[str]:
            return ["127.0.0.1"]

        guard = AddressGuard(resolve, is_allowed=lambda address: True, ports={site.port})
        bench = Bench(
            call("web_tools.web_fetch", {"urls": [url]}),
            call("react.read", {"paths": ["so:sources_pool[1]"]}),
            answer("Twice a day [[S:1]]."),
            tools=[WebFetchTool(WebClient(guard), reader := PageReader())],
        )
        await bench.say(f"How often? See {url}.")
        await bench.work()
        await reader.close()

    await check_conversation(bench)
    (turn,) = bench.state().turns
    assert turn.answer == f"Twice a day [tides.txt]({url})."
    results = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert [result.status for result in results] == ["ok", "ok"]
    assert len(results[1].text) > len(results[0].text) or "more" in results[1].text
