"""A file of scripts drives a worker process: the prompt chooses the script, the round in ANNOUNCE the reply."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from everturn.core.errors import Invalid
from everturn.models.port import LanguageModel, ModelFailed, ReplyFinished, TextDelta
from everturn_testing.models.model_contract import LanguageModelContract, build_request, collect_pieces, join_text
from everturn_testing.models.scripted_file import QueuedScriptedModel, ScriptedRound, build_model

SCRIPTS = """
[[scripts]]
when = "script:two_rounds"
[[scripts.rounds]]
chunk_chars = 4
reply = '''<channel:answer>one</channel:answer>'''
[[scripts.rounds]]
reply = "two"
then = "length"

[[scripts]]
when = "script:broken"
[[scripts.rounds]]
reply = "half"
then = "cut"
[[scripts.rounds]]
reply = "half"
then = "fail"
[[scripts.rounds]]
then = "fail_for_good"

[[scripts]]
when = "script:lanes"
shows = ["Do this.", "it was looked up"]
[[scripts.rounds]]
reply = "looked"

[[scripts]]
when = "script:lanes"
shows = ["Do this."]
[[scripts.rounds]]
reply = "look"

[[scripts]]
when = ""
[[scripts.rounds]]
chunk_chars = 3
reply = "anything else"
"""

PROMPT = """[TURN turn_1]
[user.prompt ar:turn_1.user.prompt]
an old prompt with script:broken
[assistant.completion ar:turn_1.assistant.completion]
done
[TURN turn_2]
[user.prompt ar:turn_2.user.prompt]
please run {script}
[react.tool.call tc:turn_2.call_1.call] react.plan
{{}}
[ANNOUNCE]
Round {number}/15
"""


@pytest.fixture
def model(tmp_path: Path) -> LanguageModel:
    path = tmp_path / "scripts.toml"
    path.write_text(SCRIPTS, encoding="utf-8")
    return build_model(str(path))


class TestContract(LanguageModelContract):
    @pytest.fixture
    def model(self, tmp_path: Path) -> LanguageModel:
        path = tmp_path / "scripts.toml"
        path.write_text(SCRIPTS, encoding="utf-8")
        return build_model(str(path))


async def test_the_last_prompt_chooses_the_script_and_announce_the_round(model: LanguageModel) -> None:
    first = await collect_pieces(model, build_request(PROMPT.format(script="script:two_rounds", number=1)))
    second = await collect_pieces(model, build_request(PROMPT.format(script="script:two_rounds", number=2)))

    assert join_text(first) == "<channel:answer>one</channel:answer>"
    assert first[0] == TextDelta("<cha")
    assert join_text(second) == "two"
    assert isinstance(second[-1], ReplyFinished)
    assert second[-1].reason == "length"


async def test_what_a_request_shows_can_choose_the_script_whatever_the_round(model: LanguageModel) -> None:
    asked = PROMPT.format(script="script:lanes. Do this.", number=7)

    texts = [
        join_text(await collect_pieces(model, build_request(text))) for text in (asked, asked + "it was looked up")
    ]

    assert texts == ["look", "looked"]


async def test_the_same_round_plays_again_for_a_worker_that_takes_over(model: LanguageModel) -> None:
    request = build_request(PROMPT.format(script="script:two_rounds", number=2))

    texts = [join_text(await collect_pieces(model, request)) for _ in range(2)]

    assert texts == ["two", "two"]


async def test_a_script_can_cut_and_fail(model: LanguageModel) -> None:
    cut = await collect_pieces(model, build_request(PROMPT.format(script="script:broken", number=1)))
    with pytest.raises(ModelFailed) as passing:
        await collect_pieces(model, build_request(PROMPT.format(script="script:broken", number=2)))
    with pytest.raises(ModelFailed) as lasting:
        await collect_pieces(model, build_request(PROMPT.format(script="script:broken", number=3)))

    assert join_text(cut) == "half"
    assert not any(isinstance(piece, ReplyFinished) for piece in cut)
    assert (passing.value.retryable, lasting.value.retryable) == (True, False)


async def test_a_prompt_without_its_own_script_gets_the_one_that_fits_all(model: LanguageModel) -> None:
    pieces = await collect_pieces(model, build_request(PROMPT.format(script="nothing known", number=1)))

    assert join_text(pieces) == "anything else"


async def test_a_round_beyond_the_script_fails_with_a_clear_sentence(model: LanguageModel) -> None:
    request = build_request(PROMPT.format(script="script:two_rounds", number=3))

    with pytest.raises(ModelFailed) as failed:
        await collect_pieces(model, request)

    assert failed.value.detail == (
        "scripts.toml, line 2: The script 'script:two_rounds' has 2 [[scripts.rounds]], but the model is asked for "
        "reply 3. Add one with the next reply."
    )


async def test_a_reply_whose_json_is_broken_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scripts.toml"
    action = '{"action": "complete",\n"notes": "" "final_answer": "x"}'
    path.write_text(f"[[scripts]]\nwhen = 'a'\n[[scripts.rounds]]\nreply = '''<channel:action>{action}'''\n")
    model = build_model(str(path))
    why = "The JSON of the reply in line 5 of scripts.toml is not valid: Expecting ',' delimiter"

    with capture_logs() as logged:
        await collect_pieces(model, build_request(PROMPT.format(script="a", number=1)))
    with pytest.raises(ModelFailed, match="is asked for reply 2") as failed:
        await collect_pieces(model, build_request(PROMPT.format(script="a", number=2)))
    with pytest.raises(ModelFailed, match=r"scripts\.toml: No script fits the message 'zzz'\. Add \[\[scripts\]\]"):
        await collect_pieces(model, build_request("zzz"))

    assert [line["why"][: len(why)] for line in logged] == [why]
    assert why in failed.value.detail


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[scripts]]\nwhen = "a"\n[[scripts.rounds]]\nreply = "b"\n[[scripts.rounds]]\nreplay = "b"\n',
            ", line 6: scripts 1.rounds 2.replay: Unknown key. Perhaps you mean reply.",
        ),
        ('[[scripts]]\nwhen = "a"\nround = []\nrounds = []', ", line 3: scripts 1.round: Unknown key. Perhaps you"),
        ('[[scripts]]\nwhen = "a"\n[[scripts.round]]\nreply = "b"', ", line 3: scripts 1.round: Unknown key. Perhaps"),
        ('[[script]]\nwhen = "a"', ", line 1: script: Unknown key. Perhaps you mean scripts."),
        (
            '[[scripts]]\nwhen = "a"\n[scripts.rounds]\nreply = "b"',
            ": scripts 1.rounds: Write [[scripts.rounds]], with",
        ),
        ('[[scripts]]\nwhen = "a"\nrounds = []', ", line 3: scripts 1.rounds: A script has at least one round."),
        (
            '[[scripts]]\nwhen = "a"\n[[scripts.rounds]]\nchunk_chars = "7"\n',
            ", line 4: scripts 1.rounds 1.chunk_chars: It must be a whole number, without quotes.",
        ),
        ("scripts = 3", ", line 1: scripts: Write [[scripts]], with two brackets."),
        ("[[scripts]]\nwhen = a", ": It is not valid TOML: Invalid value (at line 2, column 8)."),
        (None, ": No such file or directory. Write scripted:FILE with the path of a file with [[scripts]]."),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_line(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "scripts.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(Invalid) as refused:
        build_model(str(path))

    assert refused.value.detail.startswith(str(path))
    assert problem in refused.value.detail


async def test_queued_rounds_play_in_order_and_keep_for_the_request_that_they_name() -> None:
    model = QueuedScriptedModel()
    model.left += [(ScriptedRound(reply="kept"), ("the second",)), (ScriptedRound(reply="first"), ())]

    texts = [join_text(await collect_pieces(model, build_request(text))) for text in ("the first", "the second")]
    with pytest.raises(ModelFailed, match="no reply left"):
        await collect_pieces(model, build_request("the third"))

    assert (texts, len(model.requests), len(model.refused)) == (["first", "kept"], 3, 1)
