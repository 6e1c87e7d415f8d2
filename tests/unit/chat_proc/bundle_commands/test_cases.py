"""The files of `everturn bundle test`: what they can say, and where their mistakes are."""

import os
from pathlib import Path

import pytest

from chat_proc.bundle_commands.cases import Case, locate, read_cases
from chat_proc.bundles.manifest import BadBundle

HELLO = '[[turn]]\nuser = "Hi."\nmodel = ["Hello."]\n'


def write(folder: Path, text: str, name: str = "hello") -> Path:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / f"{name}.toml").write_text(text)
    return folder


def read_one(folder: Path) -> Case:
    (case,) = read_cases(folder)
    return case


def list_problems(folder: Path) -> list[str]:
    with pytest.raises(BadBundle) as caught:
        read_cases(folder)
    return list(map(str, caught.value.problems))


def test_single_values_and_texts_need_no_list_and_no_table(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.csv").write_text("a,b")
    text = (
        '[[turn]]\nuser = "Hi."\nattach = "a.csv"\nmodel = [{ calls = "desk.find" }, "Found."]\n'
        '[turn.expect]\nanswer_contains = "Found"\ncalls = "desk.find"\nfiles = "outputs/a.txt"\n'
    )

    (turn,) = read_one(write(tmp_path, text)).content.turn

    assert [(reply.reply, [call.tool for call in reply.calls]) for reply in turn.model] == [
        ("", ["desk.find"]),
        ("Found.", []),
    ]
    assert (turn.attach, turn.expect.answer_contains, turn.expect.calls[0].tool, turn.expect.files[0].path) == (
        ("a.csv",),
        ("Found",),
        "desk.find",
        "outputs/a.txt",
    )


def test_cases_are_chosen_by_a_part_of_their_names(tmp_path: Path) -> None:
    for name in ("refund", "refund_denied", "hello"):
        write(tmp_path, HELLO, name)

    assert [case.name for case in read_cases(tmp_path, "refund")] == ["refund", "refund_denied"]
    with pytest.raises(BadBundle, match=r"'nothing' in its name\. Its tests are: hello, refund, refund_denied\.$"):
        read_cases(tmp_path, "nothing")
    with pytest.raises(BadBundle, match=r"The folder tests has no test\. Write one to tests/hello\.toml"):
        read_cases(tmp_path / "tests", "refund")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f'{HELLO}[turn.expect]\nanswr = "x"\n',
            "tests/hello.toml, line 5: turn 1: expect.answr: Unknown key. Perhaps you mean answer.",
        ),
        (
            f'{HELLO}\n{HELLO}[turn.expect]\nanswer_matches = "a("\n',
            "tests/hello.toml, line 9: turn 2: expect.answer_matches 1: 'a(' is not a valid regular expression: "
            "missing ): a(. The syntax is RE2: like Python's, without look-around and back-references.",
        ),
        (
            '[[turn]]\nuser = "Hi."\nmodel = [{ calls = [{ tool = "a.b", arguments = {} }] }]\n',
            "tests/hello.toml, line 3: turn 1: model 1.calls 1.arguments: Unknown key. Perhaps you mean args.",
        ),
        ('about = "x"\n', "tests/hello.toml: turn: It is missing."),
        ("[[turn]\n", "tests/hello.toml, line 1: Expected ']]' at the end of an array declaration (at column 7)."),
        (f'roles = ["boss"]\n{HELLO}', "tests/hello.toml, line 1: roles 1: Input should be 'anonymous'"),
        (
            '[[turn]]\nuser = "Hi."\nattach = ["../../secret.txt", "gone.csv"]\n',
            "tests/hello.toml, line 3: turn 1: attach: ../../secret.txt is not in the bundle.",
        ),
        (
            f"[mcp_answers.mcp.crm.find]\n\n{HELLO}",
            "tests/hello.toml, line 1: mcp_answers.mcp.crm: Unknown key. Remove it or correct its name.",
        ),
        (
            f'[mcp_answers."crm.find"]\ntext = "x"\n{HELLO}',
            'tests/hello.toml, line 1: mcp_answers.crm.find: Name the tool as ["mcp.<alias>.<tool>"], with quotes.',
        ),
    ],
)
def test_a_mistake_is_reported_with_its_file_line_and_key(tmp_path: Path, text: str, problem: str) -> None:
    assert list_problems(write(tmp_path, text))[0].startswith(problem)


def test_what_is_no_file_or_nested_too_deep_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, f"a = {'[' * 5_000}{']' * 5_000}\n", "deep")
    os.mkfifo(tmp_path / "tests" / "pipe.toml")

    assert list_problems(tmp_path) == [
        "tests/deep.toml: Tables or lists are nested too deep.",
        "tests/pipe.toml: It is not a file.",
    ]


def test_mistakes_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, 'turn = "x"\n', "a")
    write(tmp_path, f"{HELLO}[turn.expect]\nx = 1\ny = 2\n", "b")

    assert [each.partition(":")[0] for each in list_problems(tmp_path)] == [
        "tests/a.toml, line 1",
        "tests/b.toml, line 5",
        "tests/b.toml, line 6",
    ]


def test_a_place_is_looked_for_in_its_own_turn() -> None:
    text = f"{HELLO}[turn.expect]\nanswer = 'a'\n{HELLO}[turn.expect]\nproblem = 'p'\nanswer = 'b'\n"

    places = [("turn", number, "expect", "answer") for number in (0, 1)]
    assert [locate(text, place) for place in places] == [5, 11]
    assert locate(text, ("turn", 0, "expect", "problem")) == 4, "the table stands for a key that it does not have"
