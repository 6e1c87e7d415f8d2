"""The check of a model: what is said of models that do everything, only some of it, or nothing."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from helpers.model_answers import PERSON, RIGHT, Meant, order, write_reply
from PIL import Image

from chat_proc.agent.prompt.system import build_codec
from chat_proc.model_check.command import run_check
from chat_proc.model_check.playing import CODECS, MAX_TIMEOUTS, Judgement, Outcome, build_request, play_tasks
from chat_proc.model_check.report import CheckReport, clean, render_report
from chat_proc.model_check.tasks import CATALOG, DOCUMENT, PROGRAM, RED_PNG, TASKS
from chat_proc.models.roles import ModelChoice
from chat_proc.settings import ModelSettings, OperatorConfig
from everturn.models.port import CodecName, MediaPart, ModelFailed, TextPart, ToolCallPart, ToolResultPart, encode_media
from everturn_testing.models.scripted_model import SCRIPTED_TRAITS, Fail, Finish, Pause, Say, Script, ScriptedModel

CHOICE = ModelChoice("local", "m", "EVERTURN_MODEL=local:m")
Write = Callable[[CodecName, int], Script]


def write_right(codec: CodecName, number: int) -> Script:
    return write_reply(codec, RIGHT[number])


def build_model(write: Write = write_right, person: Script = PERSON, **traits: Any) -> ScriptedModel:
    """Replies in the order in which the tasks are played."""
    scripts = [write(codec, task.number) for codec in CODECS for task in TASKS]
    return ScriptedModel([*scripts, person], traits=replace(SCRIPTED_TRAITS, **traits))


async def play(model: ScriptedModel, limit_s: float = 5.0, address: str = "") -> CheckReport:
    outcomes = [outcome async for outcome in play_tasks(model, 8_192, address=address, limit_s=limit_s)]
    return CheckReport(CHOICE, model.traits, "channels", outcomes)


def failed(report: CheckReport) -> Mapping[tuple[int, CodecName | None], str]:
    ended = {(each.number, each.codec): each.judgement for each in report.outcomes}
    return {place: judgement.reason for place, judgement in ended.items() if judgement.status in ("wrong", "error")}


def passed(report: CheckReport) -> list[int]:
    return [report.sum_up(codec).passed for codec in CODECS]


async def test_a_model_that_does_everything_passes_in_every_codec() -> None:
    model = build_model()

    report = await play(model)

    assert failed(report) == {}
    assert passed(report) == [12, 12, 12]
    best = report.find_best()
    assert best is not None and best.codec == "native" and report.is_usable
    sums = report.sum_up("json")
    assert (sums.calls, sums.usage.input_tokens, sums.usage.output_tokens) == (11, 1_100, 220)
    assert report.usage.input_tokens > 33 * 100 and len(model.requests) == 34
    assert sums.first_word_s is not None and sums.first_token_s is not None
    assert sums.first_token_s <= sums.first_word_s


async def test_a_model_that_only_calls_natively_is_for_that_codec() -> None:
    report = await play(build_model(lambda _codec, number: write_reply("native", RIGHT[number])))

    wrong = failed(report)
    assert passed(report) == [7, 12, 7]
    assert {number for number, codec in wrong if codec == "channels"} == {3, 4, 6, 7, 9}
    assert "It made a native tool call" in wrong[3, "channels"]
    best = report.find_best()
    assert best is not None and best.codec == "native" and report.is_usable


async def test_a_model_that_writes_prose_only_is_usable_with_no_codec() -> None:
    model = build_model(lambda _codec, number: RIGHT[number].text or "I would look that up.", "Marta?")
    model.add("She is 34.")

    report = await play(model)

    assert passed(report) == [6, 6, 6]
    wrong = failed(report)
    assert wrong[3, "native"] == 'It answered instead of calling a tool: "I would look that up."'
    assert wrong[10, None] == ("The model gave no usable reply (model calls: 2). The last: it contains no JSON object.")
    best = report.find_best()
    assert best is not None and best.codec == "native" and not report.is_usable


async def test_a_codec_with_all_required_tasks_is_better_than_one_with_more_tasks() -> None:
    def write(codec: CodecName, number: int) -> Script:
        is_wrong = number in {"channels": {2, 4}, "native": {3}, "json": {1, 2}}[codec]
        return write_reply(codec, Meant("No.") if is_wrong else RIGHT[number])

    report = await play(build_model(write))

    assert passed(report) == [10, 11, 10]
    best = report.find_best()
    assert best is not None and best.codec == "channels" and report.is_usable


@pytest.mark.parametrize(
    ("number", "meant", "reason"),
    [
        (1, Meant("Paris. It is on the Seine."), "expected one sentence"),
        (2, Meant("The capital of Italy is Rome."), "a German sentence with Rom"),
        (3, Meant(calls=[order(4711)]), "but it called orders.find(order=4711, with_items=False)"),
        (3, Meant(calls=[("orders.find", {"order": "unknown"})]), "The parameters of orders.find are invalid"),
        (4, Meant(calls=[order(1001)]), "expected calls for both orders"),
        (5, Meant(calls=[order(4711)]), "It called orders.find instead of answering"),
        (6, Meant(calls=RIGHT[6].calls, code=PROGRAM.replace("\\t", "\t")), "line 1 of the program"),
        (7, Meant(calls=[order(4711)]), "expected react.write"),
        (
            7,
            Meant(calls=[("react.write", {"path": "files/deploy.md", "content": f"{DOCUMENT}\n\nDone."})]),
            "the text goes on",
        ),
        (8, Meant(calls=RIGHT[6].calls, code="print('bonjour')"), "It called exec_tools.execute_code_python"),
    ],
)
async def test_a_wrong_reply_is_explained(number: int, meant: Meant, reason: str) -> None:
    wrong = build_model(lambda codec, n: write_reply(codec, meant if (n, codec) == (number, "native") else RIGHT[n]))

    found = failed(await play(wrong))

    assert list(found) == [(number, "native")]
    assert reason in found[number, "native"]


async def test_two_calls_in_json_are_as_right_as_the_first() -> None:
    def write(codec: CodecName, number: int) -> Script:
        if (codec, number) != ("json", 4):
            return write_right(codec, number)
        return "\n".join(str(write_reply("json", Meant(calls=[order(each)]))) for each in (1001, 1002))

    assert failed(await play(build_model(write))) == {}


async def test_the_check_asks_for_replies_as_long_as_those_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_OUTPUT_TOKENS", "5000")
    model = build_model()

    await run_check(CHOICE, model, ModelSettings(), OperatorConfig(), as_json=True)

    assert {request.max_output_tokens for request in model.requests} == {5_000}


async def test_a_cut_reply_fails_the_streaming_task() -> None:
    def write(codec: CodecName, number: int) -> Script:
        right = write_right(codec, number)
        return [Say(str(right)), Finish("length")] if (codec, number) == ("native", 11) else right

    assert failed(await play(build_model(write))) == {(11, "native"): "the reply ended with the finish reason length"}


async def test_without_images_in_the_card_the_picture_is_skipped() -> None:
    scripts = [write_right(codec, task.number) for codec in CODECS for task in TASKS if not task.image]
    model = ScriptedModel([*scripts, PERSON], traits=replace(SCRIPTED_TRAITS, images=False))

    report = await play(model)

    assert passed(report) == [11, 11, 11] and report.is_usable
    assert {each.judgement.status for each in report.outcomes if each.number == 12} == {"skipped"}


async def test_a_failure_that_would_be_repeated_ends_the_check() -> None:
    failure = ModelFailed("The key is invalid.", kind="unauthorized", provider_text="401 invalid_api_key: no such key")
    model = ScriptedModel([[Fail(failure)]])

    report = await play(model)

    reason = "unauthorized: The key is invalid. The server said: 401 invalid_api_key: no such key"
    assert failed(report) == {(1, "channels"): reason}
    assert report.find_best() is None and not report.is_whole and not report.is_usable


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    failure = ModelFailed("The connection failed.", kind="connection", provider_text="ConnectError: refused")
    model = ScriptedModel([[Fail(failure)]])

    assert failed(await play(model, address="http://10.0.0.5:8000/v1")) == {
        (
            1,
            "channels",
        ): "connection: The connection failed. Check that a server answers at http://10.0.0.5:8000/v1."
    }


async def test_a_connection_lost_in_a_reply_fails_only_its_task() -> None:
    failure = ModelFailed("The connection failed.", kind="connection", partial=True)
    report = await play(
        build_model(lambda codec, n: [Fail(failure)] if (codec, n) == ("native", 2) else write_right(codec, n))
    )

    assert failed(report) == {(2, "native"): "connection: The connection failed."}
    assert report.is_whole


async def test_a_refused_form_fails_only_its_codec() -> None:
    failure = ModelFailed("The provider rejected the request.", kind="bad_request", provider_text="no tools here")
    report = await play(build_model(lambda codec, n: [Fail(failure)] if codec == "native" else write_right(codec, n)))

    assert passed(report) == [12, 1, 12]
    best = report.find_best()
    assert best is not None and best.codec == "channels"


async def test_a_silent_model_ends_a_task_and_not_the_check() -> None:
    def write(codec: CodecName, number: int) -> Script:
        return [Pause(60)] if (codec, number) == ("json", 8) else write_right(codec, number)

    report = await play(build_model(write), limit_s=0.5)

    assert failed(report) == {(8, "json"): "No complete reply arrived within 0.5 s."}
    assert len(report.outcomes) == len(TASKS) * len(CODECS) + 1


async def test_a_model_that_never_answers_ends_the_check() -> None:
    report = await play(build_model(lambda _codec, _number: [Pause(60)]), limit_s=0.02)

    assert len(report.outcomes) == MAX_TIMEOUTS
    assert not report.is_whole and report.find_best() is None
    assert report.outcomes[-1].judgement.reason.endswith("That is the 5th time in a row.")


async def test_the_structured_call_says_at_which_level_it_succeeded() -> None:
    plain = await play(build_model())
    json_mode = await play(build_model(abilities=frozenset({"json_mode"})))

    assert [report.outcomes[-1].level for report in (plain, json_mode)] == ["plain", "json"]
    assert plain.outcomes[-1].codec is None and plain.outcomes[-1].calls == 1


def texts(parts: Iterable[object]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


@pytest.mark.parametrize("codec", CODECS)
def test_the_texts_to_copy_reach_the_model_unchanged(codec: CodecName) -> None:
    requests = {
        task.number: build_request(build_codec(codec, CATALOG.specs), task, SCRIPTED_TRAITS, 8_192) for task in TASKS
    }

    shown = {
        n: texts(part for message in request.messages for part in message.parts) for n, request in requests.items()
    }
    assert PROGRAM in shown[6] and DOCUMENT in shown[7]
    assert all("orders.find" in shown[n] or requests[n].tools for n in shown)
    assert "order_number" in shown[9] and "react.notice" in shown[9]
    [picture] = [part for message in requests[12].messages for part in message.parts if isinstance(part, MediaPart)]
    assert picture.data == encode_media(RED_PNG)


def test_a_result_is_arranged_as_the_codec_has_it() -> None:
    task = next(task for task in TASKS if task.number == 5)
    native, text = (
        build_request(build_codec(codec, CATALOG.specs), task, SCRIPTED_TRAITS, 8_192) for codec in ("native", "json")
    )

    assert [message.role for message in native.messages] == ["system", "user", "assistant", "tool", "user"]
    parts = [part for message in native.messages for part in message.parts]
    assert [type(part) for part in parts if isinstance(part, ToolCallPart | ToolResultPart)] == [
        ToolCallPart,
        ToolResultPart,
    ]
    assert [message.role for message in text.messages] == ["system", "user"]


def test_the_picture_is_red() -> None:
    with Image.open(io.BytesIO(RED_PNG)) as picture:
        assert (picture.size, picture.convert("RGB").getcolors()) == ((64, 64), [(4096, (255, 0, 0))])


async def test_people_read_a_table_and_the_recommendation(capsys: pytest.CaptureFixture[str]) -> None:
    model = build_model(lambda codec, n: "I can't." if (codec, n) == ("json", 6) else write_right(codec, n))

    status = await run_check(CHOICE, model, ModelSettings(), OperatorConfig(), as_json=False)

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert status == 0
    assert lines[0] == "Model: local:m, with a context of 200,000 tokens"
    assert [line.split()[-3:] for line in lines if line.startswith(" 6 program")] == [["ok", "ok", "wrong"]]
    assert any(line.startswith('6 json: wrong: It answered instead of calling a tool: "I can') for line in lines)
    assert lines[-1] == "Recommended codec: native. Configured: channels."
    assert len(printed.err.splitlines()) == 34
    assert printed.err.startswith("channels, 1 answer in one sentence: ok after ")


async def test_a_model_that_is_not_usable_is_not_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    model = build_model(lambda _codec, _number: "I can't.", context_tokens=16_384, context_assumed=True)

    status = await run_check(CHOICE, model, ModelSettings(), OperatorConfig(), as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert lines[0] == "Model: local:m, with a context of 16,384 tokens (assumed: set context_tokens in its card)"
    assert lines[1] == (
        "Warning: the context of 16,384 tokens is too small for turns: a request needs about 24,000, and the reply up "
        "to 8,192."
    )
    assert lines[-1].startswith("No codec passes all required tasks; native fails the fewest (")


async def test_machines_read_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    await run_check(CHOICE, build_model(), ModelSettings(), OperatorConfig(), as_json=True)

    result = json.loads(capsys.readouterr().out)
    assert (result["recommended_codec"], result["configured_codec"]) == ("native", "channels")
    assert result["usable"] and len(result["tasks"]) == 34
    assert [each["passed"] for each in result["codecs"]] == [12, 12, 12]


@pytest.mark.parametrize("as_json", [False, True])
async def test_no_output_shows_a_key(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_API_KEY", "sk-very-secret")
    long = "401: sk-very-secret\x1b[2J is unknown. " + "x" * 410 + " sk-very-secret"
    failure = ModelFailed("Rejected.", kind="unauthorized", provider_text=long)

    status = await run_check(
        CHOICE, ScriptedModel([[Fail(failure)]]), ModelSettings(), OperatorConfig(), as_json=as_json
    )

    printed = capsys.readouterr()
    assert status == 1
    assert "sk-very" not in printed.out + printed.err and "\x1b" not in printed.out + printed.err
    assert "[redacted]" in printed.out


def test_an_unknown_cost_is_not_a_cost_of_nothing() -> None:
    failed_call = Outcome(1, "a", required=True, codec="json", judgement=Judgement("error"), calls=1)
    report = CheckReport(CHOICE, replace(SCRIPTED_TRAITS, provider="openai"), "json", [failed_call])

    assert not report.usage.cost_known
    assert any(line.startswith("cost in USD") and line.endswith("unknown") for line in render_report(report))


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert clean("a\n\tb  c\x1b[0m\n") == "a b  c [0m"
    assert len(clean("x" * 10_000)) < 600
