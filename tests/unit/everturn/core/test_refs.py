"""Refs: every family parses what it writes, and nothing else."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core import refs
from everturn.core.errors import Invalid

TURN = "turn_01"
FAMILIES = [
    ("ar:turn_01.user.prompt", refs.PromptRef(TURN)),
    ("ar:turn_01.assistant.completion", refs.CompletionRef(TURN)),
    ("ar:turn_01.assistant.completion.2", refs.CompletionRef(TURN, 2)),
    ("ar:turn_01.external.followup.sig_1", refs.ExternalRef(TURN, "followup", "sig_1")),
    ("ar:turn_01.react.notes.call_1", refs.NotesRef(TURN, "call_1")),
    ("ar:turn_01.react.plan.plan_1", refs.PlanRef(TURN, "plan_1")),
    ("ar:plan.latest:plan_1", refs.PlanLatestRef("plan_1")),
    ("ar:turn_01.react.plan.ack.3", refs.PlanAckRef(TURN, 3)),
    ("ar:turn_01.react.turn.index", refs.TurnIndexRef(TURN)),
    ("ar:turn_01.artifacts.summary", refs.NamedArtifactRef(TURN, "summary")),
    ("ar:turn_01.round.2.react.thinking.0", refs.RoundRef(TURN, 2, "react.thinking.0")),
    ("tc:turn_01.call_1.call", refs.CallRef(TURN, "call_1")),
    ("tc:turn_01.call_1.result", refs.ResultRef(TURN, "call_1")),
    ("fi:turn_01.files/a/b.py", refs.FileRef(TURN, "a/b.py")),
    ("fi:turn_01.outputs/chart.png", refs.OutputRef(TURN, "chart.png")),
    ("fi:turn_01.user.attachments/my sales.csv", refs.AttachmentRef(TURN, "my sales.csv")),
    (
        "fi:turn_01.external.followup.attachments/sig_1/receipt.pdf",
        refs.ExternalAttachmentRef(TURN, "followup", "sig_1", "receipt.pdf"),
    ),
    ("fi:turn_01.logs/run.log", refs.LogRef(TURN, "run.log")),
    ("so:sources_pool[1-3,7]", refs.SourcesRef((1, 2, 3, 7))),
    ("su:turn_01.conv.range.summary", refs.RangeSummaryRef(TURN)),
    ("ws:turn_01.conv.working.summary", refs.WorkingSummaryRef(TURN)),
    ("sk:public.pdf-press/SKILL.md", refs.SkillRef("public", "pdf-press", "SKILL.md")),
    ("sk:help_desk.refunds/scripts/a b.py", refs.SkillRef("help_desk", "refunds", "scripts/a b.py")),
    ("ks:docs/architecture.md", refs.KnowledgeRef("docs/architecture.md")),
]
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="/\\")
ANY_TEXT = st.text(CHARACTERS, min_size=1, max_size=20)
PARTS = (
    st.one_of(st.from_regex(r"[A-Za-z0-9 _.\-\]\[:]{1,30}", fullmatch=True), ANY_TEXT)
    .map(lambda part: unicodedata.normalize("NFC", part))
    .filter(lambda part: part not in (".", ".."))
)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", fullmatch=True)
BAD_PATHS = [
    "",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a//b",
    "a/",
    "./a",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\u2028b",
    "cafe\u0301",
    "\ud800",
    "x" * 256,
    "\u00e9" * 128,
    "/".join(["x" * 200] * 6),
]


@pytest.mark.parametrize(("text", "ref"), FAMILIES)
def test_each_family_is_written_and_read_in_its_one_form(text: str, ref: refs.Ref) -> None:
    assert str(ref) == text
    assert refs.parse_ref(text) == ref


def test_every_ref_family_is_covered() -> None:
    assert {type(ref) for _, ref in FAMILIES} == set(refs.Ref.__args__)


@pytest.mark.parametrize(("text", "ref"), [case for case in FAMILIES if "{owner}" in case[1].form])
def test_a_leading_conversation_id_is_part_of_the_ref(text: str, ref: refs.Ref) -> None:
    scheme, rest = text.split(":", 1)
    elsewhere = f"{scheme}:conv_9.{rest}"

    parsed = refs.parse_ref(elsewhere)

    assert getattr(parsed, "conversation", None) == "conv_9"
    assert type(parsed) is type(ref)
    assert str(parsed) == elsewhere


@given(turn=IDS, path=PATHS, conversation=st.none() | IDS)
def test_any_file_ref_is_parsed_to_its_path(turn: str, path: str, conversation: str | None) -> None:
    owner = conversation and f"conv_{conversation}"

    for family in (refs.FileRef, refs.OutputRef, refs.LogRef):
        ref = family(f"turn_{turn}", path, conversation=owner)
        assert refs.parse_ref(str(ref)) == ref


@given(path=PATHS, lines=st.tuples(st.integers(1, 999), st.integers(0, 99) | st.none()) | st.none())
def test_any_document_and_its_lines_are_parsed(path: str, lines: tuple[int, int | None] | None) -> None:
    first, more = lines or (None, None)

    ref = refs.KnowledgeRef(path, first, None if first is None or more is None else first + more)

    assert refs.parse_ref(str(ref)) == ref


def test_lines_of_a_document_can_be_named_in_two_ways() -> None:
    wanted = refs.KnowledgeRef("docs/c#.md", 10, 40)

    assert refs.parse_ref("ks:docs/c#.md#L10-L40") == refs.parse_ref("ks:docs/c#.md#L10-40") == wanted
    with pytest.raises(Invalid, match="last line"):
        refs.parse_ref("ks:a.md#L3-L2")
    with pytest.raises(Invalid):
        refs.parse_ref("ks:../a.md")


@given(turn=IDS, kind=st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), message=IDS, name=PARTS)
def test_any_attachment_ref_is_parsed_to_its_name(turn: str, kind: str, message: str, name: str) -> None:
    for ref in (
        refs.AttachmentRef(f"turn_{turn}", name),
        refs.ExternalAttachmentRef(f"turn_{turn}", kind, message, name),
    ):
        assert refs.parse_ref(str(ref)) == ref


@given(call=IDS, n=st.integers(0, 999_999_999), round=st.integers(0, 999_999_999))
def test_any_ref_is_parsed_to_its_fields(call: str, n: int, round: int) -> None:
    for ref in (
        refs.CallRef(TURN, call),
        refs.ResultRef(TURN, call),
        refs.NotesRef(TURN, call),
        refs.PlanRef(TURN, call),
        refs.PlanLatestRef(call),
        refs.PlanAckRef(TURN, n),
        refs.CompletionRef(TURN, n),
        refs.RoundRef(TURN, round, call),
    ):
        assert refs.parse_ref(str(ref)) == ref


@given(sids=st.sets(st.integers(1, 500), min_size=1, max_size=50))
def test_source_numbers_come_back_in_order(sids: set[int]) -> None:
    assert refs.parse_ref(refs.sources_ref(sids)) == refs.SourcesRef(tuple(sorted(sids)))


@given(text=st.text(max_size=60) | st.from_regex(r"(ar|tc|fi|so|su|ws|ks|sk):[a-z_0-9./\[\]-]{0,40}", fullmatch=True))
def test_any_text_is_a_ref_that_spells_itself_or_is_refused(text: str) -> None:
    try:
        ref = refs.parse_ref(text)
    except Invalid:
        return

    assert refs.parse_ref(str(ref)) == ref


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_could_leave_its_folder_or_break_a_line_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        refs.check_path(path)
    with pytest.raises(Invalid):
        refs.file_ref(TURN, path)
    with pytest.raises(Invalid):
        refs.parse_ref(f"fi:{TURN}.files/{path}")


@pytest.mark.parametrize("path", ["a.csv", "a b/ü.csv", "x" * 255, "report (1).pdf", ".hid", "a..b", "\U0001f600.txt"])
def test_an_ordinary_path_is_accepted(path: str) -> None:
    refs.check_path(path)


@pytest.mark.parametrize(
    "text",
    [f"so:sources_pool[{sids}]" for sids in ("", "0", "1-999999999", "a", "1,,2")],
)
def test_a_bad_list_of_sources_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        refs.parse_ref(text)


def test_a_reversed_and_overlapping_list_of_sources_is_put_in_order() -> None:
    assert str(refs.parse_ref("so:sources_pool[3 - 1, 2,9]")) == "so:sources_pool[1-3,9]"


@pytest.mark.parametrize(
    "text",
    ["sk:public.pdf-press", "sk:pdf-press/SKILL.md", "sk:public.pdf-press/../x", "sk:Public.pdf-press/SKILL.md"],
)
def test_a_skill_is_named_by_namespace_name_and_path(text: str) -> None:
    with pytest.raises(Invalid, match=r"sk:\{namespace\}\.\{skill\}/\{path\}|relative"):
        refs.parse_ref(text)


@pytest.mark.parametrize(
    "text",
    ["tc:turn_01.a.b.result", "ar:turn_01.user.prompt\n", "ar:Turn_01.user.prompt", "ar:turn_.user.prompt"],
)
def test_a_near_miss_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        refs.parse_ref(text)


def test_an_invalid_ref_error_lists_the_forms_of_its_kind() -> None:
    with pytest.raises(Invalid, match=r"tc:\{turn\}\.\{call\}\.result"):
        refs.parse_ref("tc:turn_01.oops")
    with pytest.raises(Invalid, match=r"start with ar:, tc:"):
        refs.parse_ref("turn_01/files/a.py")


def test_a_ref_is_bounded() -> None:
    with pytest.raises(Invalid, match="2048"):
        refs.parse_ref("fi:" + "x" * 3000)


def test_the_constructors_give_the_spelling() -> None:
    assert refs.prompt_ref(TURN) == "ar:turn_01.user.prompt"
    assert refs.completion_ref(TURN) == "ar:turn_01.assistant.completion"
    assert refs.completion_ref(TURN, 2) == "ar:turn_01.assistant.completion.2"
    assert refs.round_ref(TURN, 0, "turn.header") == "ar:turn_01.round.0.turn.header"
