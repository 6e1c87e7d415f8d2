import pytest

from chat_proc.catalog.tool import Strategy
from chat_proc.channels.actions import ActionHead, ActionJudge, FanoutRules, canonical_path, may_follow

EXPLORE: Strategy = "exploration"
EXPLOIT: Strategy = "exploitation"
NEUTRAL: Strategy = "neutral"
UNKNOWN: Strategy = "unknown"
RULES = FanoutRules(
    {
        "look": EXPLORE,
        "search": EXPLORE,
        "write": EXPLOIT,
        "run": EXPLOIT,
        "run_too": EXPLOIT,
        "plan": NEUTRAL,
        "other": UNKNOWN,
        "another": UNKNOWN,
    },
    frozenset({"run", "run_too"}),
)
FINAL = "final"


def judge(*actions: str) -> list[str | None]:
    """What is wrong with each action, in order."""
    judge = ActionJudge(RULES)
    refusals = [judge.judge(ActionHead(None if action == FINAL else action)) for action in actions]
    return [refusal.kind if refusal else None for refusal in refusals]


@pytest.mark.parametrize(
    ("first", "then", "allowed"),
    [
        (EXPLORE, EXPLORE, True),
        (EXPLORE, EXPLOIT, False),
        (EXPLORE, NEUTRAL, True),
        (EXPLOIT, EXPLORE, True),
        (EXPLOIT, EXPLOIT, True),
        (EXPLOIT, NEUTRAL, True),
        (NEUTRAL, EXPLORE, True),
        (NEUTRAL, EXPLOIT, True),
        (NEUTRAL, NEUTRAL, True),
        *[(UNKNOWN, other, False) for other in (EXPLORE, EXPLOIT, NEUTRAL, UNKNOWN)],
        *[(other, UNKNOWN, False) for other in (EXPLORE, EXPLOIT, NEUTRAL)],
    ],
)
def test_the_matrix_of_strategies(first: Strategy, then: Strategy, allowed: bool) -> None:
    assert may_follow(first, then) is allowed


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (["look", "search"], [None, None]),
        (["write", "look"], [None, None]),
        (["look", "write"], [None, "explore_then_exploit"]),
        (["look", "plan", "write"], [None, None, "explore_then_exploit"]),
        (["other"], [None]),
        (["other", "look"], [None, "beside_unknown"]),
        (["plan", "other"], [None, "beside_unknown"]),
        (["other", "another"], [None, "beside_unknown"]),
        (["none"], ["unknown_tool"]),
        (["none", "look"], ["unknown_tool", None]),
        (["plan", "look", "search", "look", "look"], [None, None, None, None, "too_many_actions"]),
        (["run", "plan"], [None, None]),
        (["run", "run"], [None, "second_program"]),
        (["run", "run_too"], [None, "second_program"]),
        (["plan", FINAL], [None, None]),
        (["look", FINAL], [None, "final_after_work"]),
        (["write", FINAL], [None, "final_after_work"]),
        (["other", FINAL], [None, "final_after_work"]),
        ([FINAL, "plan"], [None, None]),
        ([FINAL, "look"], [None, "work_after_final"]),
        ([FINAL, FINAL], [None, "second_final"]),
        (["plan", FINAL, "plan", "write"], [None, None, None, "work_after_final"]),
    ],
)
def test_a_candidate_is_judged_against_every_action_let_pass_before_it(
    actions: list[str], expected: list[str | None]
) -> None:
    assert judge(*actions) == expected


def test_a_refused_action_does_not_count_for_those_after_it() -> None:
    assert judge("look", "write", "search", FINAL) == [None, "explore_then_exploit", None, "final_after_work"]


def test_the_same_output_path_may_be_written_once_however_it_is_named() -> None:
    judge = ActionJudge(RULES)

    assert judge.claim_path("write", "files/a.md") is None
    assert judge.claim_path("write", "files/b.md") is None
    refusal = judge.claim_path("write", "fi:turn_01.files/A.md")
    assert refusal is not None
    assert refusal.kind == "same_path"


def test_looking_at_a_path_claims_nothing() -> None:
    judge = ActionJudge(RULES)

    assert judge.claim_path("look", "files/a.md") is None
    assert judge.claim_path("write", "files/a.md") is None


@pytest.mark.parametrize(
    "path",
    ["a.md", "files/a.md", "./files//a.md", "turn_01ab/files/a.md", "fi:turn_01ab.files/a.md", " files/b/../A.md"],
)
def test_a_path_has_one_spelling(path: str) -> None:
    assert canonical_path(path) == "files/a.md"


def test_products_and_files_are_different_paths() -> None:
    assert canonical_path("outputs/a.md") == "outputs/a.md"
