"""Plans: what each change appends, and how marks in notes move steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Conflict, Invalid, NotFound
from everturn.core.ids import PlanId, TurnId
from everturn.timeline.plans import (
    PlanMoment,
    PlanSnapshot,
    PlanStatus,
    StepStatus,
    activate_plan,
    build_ack,
    close_plan,
    mark_steps,
    new_plan,
    read_marks,
    replace_plan,
)

FIRST = PlanMoment(TurnId("turn_1"), "2026-01-01T00:00:00.000Z")
LATER = PlanMoment(TurnId("turn_2"), "2026-01-02T00:00:00.000Z")


def begin(plan_id: str, *plans: PlanSnapshot, labels: tuple[str, ...] = ("a", "b")) -> tuple[PlanSnapshot, ...]:
    return new_plan(plans, plan_id=PlanId(plan_id), labels=labels, moment=FIRST)


def fold(*changes: PlanSnapshot) -> list[PlanSnapshot]:
    return list({plan.plan_id: plan for plan in changes}.values())


def test_a_new_plan_is_open_and_current_with_pending_steps() -> None:
    (plan,) = begin("plan_a", labels=("collect\nmetrics", " draft "))

    assert plan.status is PlanStatus.OPEN
    assert plan.current
    assert [(step.n, step.label, step.status) for step in plan.steps] == [
        (1, "collect metrics", StepStatus.PENDING),
        (2, "draft", StepStatus.PENDING),
    ]
    assert plan.snapshot_ref == "ar:turn_1.react.plan.plan_a"


def test_a_new_plan_takes_the_current_place_from_another_which_stays_open() -> None:
    (old,) = begin("plan_a")

    demoted, new = new_plan([old], plan_id=PlanId("plan_b"), labels=["x"], moment=LATER)

    assert (demoted.plan_id, demoted.current, demoted.status) == ("plan_a", False, PlanStatus.OPEN)
    assert demoted.snapshot_ref == "ar:turn_2.react.plan.plan_a"
    assert demoted.origin_turn_id == "turn_1"
    assert new.current


def test_replace_supersedes_the_target_and_starts_a_lineage() -> None:
    (old,) = begin("plan_a")

    retired, new = replace_plan([old], "plan_a", plan_id=PlanId("plan_b"), labels=["x"], moment=LATER)

    assert (retired.status, retired.superseded_ts, retired.current) == (PlanStatus.SUPERSEDED, LATER.ts, False)
    assert (new.plan_id, new.current) == ("plan_b", True)


def test_replacing_a_plan_that_is_not_current_also_demotes_the_current_one() -> None:
    old, current = begin("plan_b", *begin("plan_a"))

    changes = replace_plan([old, current], "plan_a", plan_id=PlanId("plan_c"), labels=["x"], moment=LATER)

    assert [(plan.plan_id, plan.current) for plan in fold(*changes)] == [
        ("plan_b", False),
        ("plan_a", False),
        ("plan_c", True),
    ]


def test_activate_moves_the_current_place() -> None:
    plans = fold(*begin("plan_a"), *begin("plan_b", *begin("plan_a")))

    changes = activate_plan(plans, "plan_a", moment=LATER)

    assert [(plan.plan_id, plan.current) for plan in changes] == [("plan_b", False), ("plan_a", True)]


def test_activating_the_current_plan_demotes_nothing() -> None:
    changes = activate_plan(begin("plan_a"), "plan_a", moment=LATER)

    assert [(plan.plan_id, plan.current) for plan in changes] == [("plan_a", True)]


def test_close_ends_a_plan_without_another_in_its_place() -> None:
    plans = fold(*begin("plan_b", *begin("plan_a")))

    (closed,) = close_plan(plans, "plan_b", moment=LATER)

    assert (closed.status, closed.closed_ts, closed.current) == (PlanStatus.CLOSED, LATER.ts, False)


def test_an_unknown_target_is_refused_before_anything_changes() -> None:
    for change in (activate_plan, close_plan):
        with pytest.raises(NotFound):
            change(begin("plan_a"), "plan_x", moment=LATER)


def test_a_closed_plan_can_not_be_changed() -> None:
    closed = close_plan(begin("plan_a"), "plan_a", moment=FIRST)

    for change in (activate_plan, close_plan):
        with pytest.raises(Conflict, match="closed"):
            change(closed, "plan_a", moment=LATER)


@pytest.mark.parametrize("labels", [(), ("",), (" \n",), ("x" * 301,), ("x",) * 51])
def test_steps_must_be_lines_within_their_limits(labels: tuple[str, ...]) -> None:
    with pytest.raises(Invalid):
        begin("plan_a", labels=labels)


def test_marks_move_steps_of_the_current_plan() -> None:
    (plan,) = begin("plan_a")

    marked = mark_steps(plan, "Working.\n ✓ [1] collected\n… [2]", moment=LATER)

    assert marked is not None
    assert [step.status for step in marked.steps] == [StepStatus.DONE, StepStatus.IN_PROGRESS]
    assert (marked.status, marked.current, marked.last_turn_id) == (PlanStatus.OPEN, True, "turn_2")
    assert build_ack(plan, marked) == "✓ [1] a\n… [2] b"


def test_a_plan_without_open_steps_is_complete_and_not_current() -> None:
    (plan,) = begin("plan_a")

    marked = mark_steps(plan, "✓ [1]\n✗ [2]", moment=LATER)

    assert marked is not None
    assert (marked.status, marked.current) == (PlanStatus.COMPLETE, False)
    assert mark_steps(marked, "□ [1]", moment=LATER) is None


@pytest.mark.parametrize("notes", ["", "I did ✓ [1] already", "✓ 1", "✓ [0]", "✓ [9]", "✓ [x]", "□ [1]", "✓ [\u0661]"])
def test_notes_without_a_mark_that_changes_something_change_nothing(notes: str) -> None:
    (plan,) = begin("plan_a")

    assert mark_steps(plan, notes, moment=LATER) is None


def test_marks_do_not_move_a_plan_that_is_not_current() -> None:
    demoted, _ = begin("plan_b", *begin("plan_a"))

    assert mark_steps(demoted, "✓ [1]", moment=LATER) is None


def test_a_later_mark_of_the_same_step_wins() -> None:
    assert read_marks("… [1]\n✓[1]") == {1: StepStatus.DONE}


@pytest.mark.parametrize(
    ("notes", "marks"),
    [
        ("✓ [1]", {1: StepStatus.DONE}),
        ("✓[2]", {2: StepStatus.DONE}),
        ("\t ✗ [2] could not", {2: StepStatus.FAILED}),
        ("✓ 2.", {2: StepStatus.DONE}),
        ("✓ 2. drafted", {2: StepStatus.DONE}),
        ("… 1: on it", {1: StepStatus.IN_PROGRESS}),
        ("□ [1]", {1: StepStatus.PENDING}),
        ("✓ [1] ✗ [2]", {1: StepStatus.DONE}),
    ],
)
def test_a_mark_is_read_in_all_of_its_forms(notes: str, marks: dict[int, StepStatus]) -> None:
    assert read_marks(notes) == marks


@pytest.mark.parametrize(
    "notes", ["done: ✓ [1]", "- ✓ [1]", "✓ 1", "✓ 2.5 s", "✓ 10:30 was early", "✓ [1", "✓ one.", "[1] ✓", "✓ []", "✓"]
)
def test_similar_text_is_not_a_mark(notes: str) -> None:
    assert read_marks(notes) == {}


def test_a_box_mark_resets_a_step_to_pending() -> None:
    (plan,) = begin("plan_a")
    done = mark_steps(plan, "✓ [1]", moment=LATER)
    assert done is not None

    back = mark_steps(done, "□ [1]", moment=LATER)

    assert back is not None
    assert [step.status for step in back.steps] == [StepStatus.PENDING, StepStatus.PENDING]


def test_numbers_of_no_step_are_passed_over_and_the_others_count() -> None:
    (plan,) = begin("plan_a")

    marked = mark_steps(plan, "✓ [0]\n✓ [3]\n✗ 999.\n✓ [2]", moment=LATER)

    assert marked is not None
    assert [step.status for step in marked.steps] == [StepStatus.PENDING, StepStatus.DONE]


def test_a_mark_keeps_the_plans_id_and_the_other_marks() -> None:
    (plan,) = begin("plan_a")
    first = mark_steps(plan, "… [2]", moment=FIRST)
    assert first is not None

    second = mark_steps(first, "✓ [1]", moment=LATER)

    assert second is not None
    assert second.plan_id == "plan_a"
    assert [step.status for step in second.steps] == [StepStatus.DONE, StepStatus.IN_PROGRESS]


def test_a_plan_that_is_all_failed_is_complete() -> None:
    (plan,) = begin("plan_a")

    marked = mark_steps(plan, "✗ [1]\n✗ [2]", moment=LATER)

    assert marked is not None
    assert marked.status is PlanStatus.COMPLETE


def test_completing_a_plan_activates_no_other() -> None:
    old, current = fold(*begin("plan_b", *begin("plan_a")))
    done = mark_steps(current, "✓ [1]\n✓ [2]", moment=LATER)

    assert done is not None
    assert not any(plan.current for plan in fold(old, current, done))


def test_a_complete_plan_can_be_neither_closed_nor_activated_nor_replaced() -> None:
    done = mark_steps(begin("plan_a")[0], "✓ [1]\n✓ [2]", moment=LATER)
    assert done is not None

    for change in (activate_plan, close_plan):
        with pytest.raises(Conflict, match="complete"):
            change([done], "plan_a", moment=LATER)
    with pytest.raises(Conflict, match="complete"):
        replace_plan([done], "plan_a", plan_id=PlanId("plan_b"), labels=["x"], moment=LATER)


def test_activating_an_older_plan_keeps_its_id_and_its_marks() -> None:
    old = mark_steps(begin("plan_a")[0], "✓ [1]", moment=FIRST)
    assert old is not None
    plans = fold(*begin("plan_b", old))

    *_, active = activate_plan([*plans], "plan_a", moment=LATER)

    assert (active.plan_id, active.current, active.steps[0].status) == ("plan_a", True, StepStatus.DONE)


@given(notes=st.text(st.sampled_from("✓✗…□[]0123.: \nab"), max_size=60))
def test_marks_move_steps_of_the_plan_only_and_never_lose_one(notes: str) -> None:
    (plan,) = begin("plan_a", labels=("a", "b", "c"))

    marked = mark_steps(plan, notes, moment=LATER)

    if marked is not None:
        assert [(step.n, step.label) for step in marked.steps] == [(1, "a"), (2, "b"), (3, "c")]
        assert marked.steps != plan.steps


CHANGES = st.lists(st.tuples(st.sampled_from(["new", "replace", "activate", "close"]), st.integers(0, 5)), max_size=12)


@given(changes=CHANGES)
def test_at_most_one_plan_is_current_and_that_one_is_open(changes: list[tuple[str, int]]) -> None:
    latest: dict[str, PlanSnapshot] = {}

    for number, (mode, which) in enumerate(changes):
        plans, target, fresh = list(latest.values()), f"plan_{which}", PlanId(f"plan_{number}")
        try:
            match mode:
                case "new":
                    appended = new_plan(plans, plan_id=fresh, labels=["x"], moment=FIRST)
                case "replace":
                    appended = replace_plan(plans, target, plan_id=fresh, labels=["x"], moment=FIRST)
                case "activate":
                    appended = activate_plan(plans, target, moment=FIRST)
                case _:
                    appended = close_plan(plans, target, moment=FIRST)
        except (NotFound, Conflict):
            continue
        latest |= {plan.plan_id: plan for plan in appended}

    current = [plan for plan in latest.values() if plan.current]
    assert len(current) <= 1
    assert all(plan.status is PlanStatus.OPEN for plan in current)
