"""Skills of a bundle: what is accepted, and what is refused with the file, the line and the problem."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.skills import reader
from chat_proc.skills.reader import SkillSpec, load_platform_skills, read_skills
from everturn.core.errors import Invalid, NotFound
from everturn.core.refs import SkillRef, parse_ref
from everturn.skills.model import Skill, render_catalog

FOLDER = "skills/support/refunds"
PATH = f"{FOLDER}/SKILL.md"


def text(name: str = "refunds", description: str = "Decides on refunds.", body: str = "Ask for the order.") -> bytes:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n".encode()


def read(front: str, body: str = "Do it.") -> Skill:
    return next(iter(read_skills({PATH: f"---\n{front}\n---\n{body}".encode()})))


def refused(files: dict[str, bytes], *specs: SkillSpec) -> str:
    with pytest.raises(Invalid) as raised:
        read_skills(files, specs or None)
    return raised.value.detail


def test_a_skill_has_all_files_of_its_folder() -> None:
    files = {
        PATH: text(),
        f"{FOLDER}/scripts/sum.py": b"print(1)\n",
        f"{FOLDER}/assets/logo.png": b"\x89PNG\x00",
        "skills/support/README.md": b"not a skill",
        "bundle.toml": b"",
    }

    (skill,) = read_skills(files)

    assert (skill.id, skill.description, skill.folder_ref) == (
        "support.refunds", "Decides on refunds.", "sk:support.refunds/"
    )  # fmt: skip
    assert [*skill.files] == ["SKILL.md", "assets/logo.png", "scripts/sum.py"]
    script = skill.files["scripts/sum.py"]
    assert (script.ref, script.path) == (
        "sk:support.refunds/scripts/sum.py", "skills/support.refunds/scripts/sum.py"
    )  # fmt: skip
    assert script.is_text
    assert not skill.files["assets/logo.png"].is_text


def test_fields_of_the_standard_and_of_other_agents_are_accepted() -> None:
    skill = read(
        "name: refunds\ndescription: >-\n  Decides on\n  refunds.\nlicense: Apache-2.0\n"
        "compatibility: Requires Python 3.11+\nallowed-tools: Bash(git:*) Read\nmodel: x\n"
        'metadata:\n  author: example-org\n  version: 1.0\n  date: 2026-01-01\n  "quoted": "yes"'
    )

    assert skill.description == "Decides on refunds."
    assert read("name: refunds\ndescription: x\nallowed-tools:\n- Read\n- Write").name == "refunds"


def test_line_ends_of_windows_and_a_byte_order_mark_are_accepted() -> None:
    data = b"\xef\xbb\xbf" + text().replace(b"\n", b"\r\n")

    (skill,) = read_skills({PATH: data})

    assert skill.name == "refunds"
    assert skill.files["SKILL.md"].decode().startswith("---\r\nname")


def test_the_skill_inside_a_skill_is_one_of_its_files() -> None:
    (skill,) = read_skills({PATH: text(), f"{FOLDER}/assets/example/SKILL.md": b"no fields"})

    assert [*skill.files] == ["SKILL.md", "assets/example/SKILL.md"]


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("description: x", "line 2: name is missing."),
        ("name: refunds", "line 2: description is missing."),
        ("name: refunds\ndescription:", "line 3: description must not be empty."),
        ("name: refunds\ndescription: '  '", "line 3: description must not be empty."),
        ("name: Refunds\ndescription: x", "line 2: name 'Refunds' must consist of a-z, 0-9 and single hyphens"),
        ("name: re--funds\ndescription: x", "line 2: name 're--funds' must consist of"),
        ("description: x\nname: other", "line 3: the name 'other' must be that of its folder, 'refunds'."),
        (f"name: {'x' * 65}\ndescription: x", "line 2: name is too long: string should have at most 64 characters."),
        (f"name: refunds\ndescription: {'x' * 1025}", "line 3: description is too long: string should have at most"),
        ("name: refunds\ndescription: x\nname: refunds", "line 4: name is given twice."),
        ("name: refunds\ndescription: [x]", "line 3: description must be a text."),
        (
            "name: refunds\ndescription: Use when: \"no\"",
            'line 3: the value of description contains a colon, so it needs quotes. Write description: "Use when: ',
        ),
        ("name: refunds\ndescription: [draft] x", "line 3: the value of description begins with ["),
        ("name: refunds\ndescription: x\n y: z", "line 4: this is not valid YAML: a text with a colon needs"),
        ("name: refunds\ndescription: 'x' y", "line 3: this is not valid YAML: while parsing a block mapping"),
        ("name: &n refunds\ndescription: *n", "line 3: aliases such as *name are not allowed."),
        ("name: refunds\ndescription: " + "[" * 9 + "]" * 9, "line 3: at most 8 levels of lists and mappings"),
        ("name: refunds\ndescription: x\n? [a]\n: b", "line 4: a key must be a text."),
        ('name: refunds\ndescription: "\\0"', "line 3: a text must not contain control characters."),
        ('name: refunds\ndescription: "\\ud800"', "line 3: this is not valid YAML: while parsing a quoted"),
        ('name: refunds\ndescription: "\\UFFFFFFFF"', "line 3: this is not valid YAML: "),
        ("- name", "line 2: this must be a mapping of keys to values, such as name: value."),
        ("", "line 2: this must be a mapping of keys to values, such as name: value."),
        (f"name: refunds\ndescription: x\nlicense: {'é' * 20_000}", "its YAML is longer than 32 KiB."),
    ],
)  # fmt: skip
def test_bad_fields_are_refused_with_their_line(front: str, problem: str) -> None:
    found = refused({PATH: f"---\n{front}\n---\nDo it.".encode()})

    assert found.startswith(f"{PATH}") and problem in found


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"# Refunds", "line 1: the file must begin with the line --- and the fields name and description."),
        (b"", "line 1: the file must begin with"),
        (b"---\nname: refunds\n", "line 1: there is no line --- after the fields"),
        (b"---\nname: refunds\ndescription: x\n---\n \n", "line 4: there are no instructions after the fields."),
        (b"---\nname: refunds\ndescription: caf\xe9\n---\nx", "line 3: the byte 0xe9 is not UTF-8."),
        (text(body="a\x00b"), "line 6: the file contains a NUL character."),
        (text(body="x" * 32_000), "characters; at most 32000 are allowed, because it is always shown whole."),
    ],
)
def test_a_bad_file_is_refused_with_its_line(data: bytes, problem: str) -> None:
    found = refused({PATH: data})

    assert found.startswith(PATH) and problem in found


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"skills/refunds/skill.md": text()}, "skills/refunds/skill.md: the file must be named SKILL.md."),
        ({"skills/menu/SKILL.md": text()}, "skills/menu/SKILL.md: a skill is a folder in the folder of its namespace."),
        ({"skills/SKILL.md": text()}, "Move it to skills/<namespace>/<skill>/SKILL.md."),
        ({"skills/public/refunds/SKILL.md": text()}, "the namespace public is that of the platform's skills."),
        ({"skills/project/refunds/SKILL.md": text()}, "the namespace project is that of skills that are uploaded"),
        ({"skills/a b/refunds/SKILL.md": text()}, "the namespace 'a b' must consist of a-z, 0-9, _ and -"),
        ({PATH: text(), f"{FOLDER}/big.bin": b"x" * 10_000_000}, "big.bin has 10000000 bytes; a file of a skill can"),
        ({PATH: text(), f"{FOLDER}/../../x.py": b""}, "must be relative, without empty parts, '.' and '..'."),
        ({PATH: text(), f"{FOLDER}/a\\b.py": b""}, "contains a backslash or a control character"),
        ({PATH: text(), f"{FOLDER}/{'x' * 201}": b""}, "The path has 201 characters; at most 200 are allowed."),
        ({PATH: text()} | {f"{FOLDER}/{n}": b"" for n in range(200)}, "has 201 files; a skill can have at most 200."),
    ],
)  # fmt: skip
def test_bad_names_and_sizes_are_refused(files: dict[str, bytes], problem: str) -> None:
    assert problem in refused(files)


def test_two_skills_of_one_name_are_refused() -> None:
    files = {PATH: text(), "more/support/refunds/SKILL.md": text()}

    assert [skill.id for skill in read_skills(files)] == ["support.refunds"]
    found = refused(files, SkillSpec(path="skills"), SkillSpec(path="more"))
    assert found == "Two skills are named support.refunds. Rename one of them, or move it into another namespace."


def test_the_number_of_skills_and_their_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"skills/a/s{n}/SKILL.md": text(f"s{n}", "x" * 1000) for n in range(17)}

    assert "have 17210 characters in total; at most 16000 are allowed" in refused(files)
    monkeypatch.setattr(reader, "MAX_SKILLS", 16)
    assert refused(files) == "There are 17 skills; one agent can have at most 16."


THREE = {PATH: text(), "skills/support/tone/SKILL.md": text("tone"), "skills/legal/terms/SKILL.md": text("terms")}


@pytest.mark.parametrize(
    ("specs", "ids"),
    [
        ([], ["legal.terms", "support.refunds", "support.tone"]),
        ([{"path": "skills"}], ["legal.terms", "support.refunds", "support.tone"]),
        ([{"path": "./skills/support/"}], ["support.refunds", "support.tone"]),
        ([{"path": "skills/support/tone"}, {"path": "skills/support"}], ["support.refunds", "support.tone"]),
        ([{"namespace": "legal"}], ["legal.terms"]),
        ([{"namespace": "public"}], ["public.x"]),
        ([{"namespace": "public"}, {"namespace": "legal"}], ["legal.terms", "public.x"]),
    ],
)
def test_specs_choose_skills_in_bundle_toml_and_in_the_descriptor(specs: list[dict[str, str]], ids: list[str]) -> None:
    platform = [Skill("public", "x", "X.", {})]
    models = [SkillSpec.model_validate(spec) for spec in specs] or None

    assert [skill.id for skill in read_skills(THREE, models, platform)] == ids
    if specs:
        descriptor = f"import os\nX = os.getcwd()\nSKILLS_SPECS: list = {specs}\n".encode()
        assert [skill.id for skill in read_skills(THREE | {"skills_descriptor.py": descriptor}, None, platform)] == ids


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"path": "skills/none"}, "there is no SKILL.md below skills/none/."),
        ({"path": "skills/support/tone/x"}, "there is no SKILL.md below"),
        ({"path": "../skills"}, "the path '../skills' must be a folder of the bundle, without '..'."),
        ({"path": "/skills"}, "must be a folder of the bundle"),
        ({"namespace": "none"}, "no SKILL.md below skills/none/. The platform's skills have the namespace public."),
        ({"namespace": "../x"}, "the namespace '../x' can have a-z, 0-9, _ and - only."),
    ],
)
def test_a_spec_without_skills_is_refused_with_its_place(spec: dict[str, str], problem: str) -> None:
    found = refused(THREE, SkillSpec(path="skills"), SkillSpec.model_validate(spec))
    assert found.startswith("bundle.toml, [[skills]] number 2: ") and problem in found

    descriptor = f"SKILLS_SPECS = [\n    {{'path': 'skills'}},\n    {spec},\n]\n".encode()
    found = refused(THREE | {"skills_descriptor.py": descriptor})
    assert found.startswith("skills_descriptor.py, line 3: ") and problem in found


@pytest.mark.parametrize(
    ("descriptor", "problem"),
    [
        ("SKILLS_SPECS = [", "line 1: this is not valid Python: '[' was never closed."),
        ("import os", "does not assign SKILLS_SPECS."),
        ("SKILLS_SPECS = []\nSKILLS_SPECS = []", "assigns several times SKILLS_SPECS."),
        ("import os\nSKILLS_SPECS = os.listdir()", "line 2: SKILLS_SPECS must be a list of literals, because the file"),
        ("SKILLS_SPECS = {'path': 'skills'}", "line 1: SKILLS_SPECS must be a list."),
        ("SKILLS_SPECS = ['skills']", "line 1: "),
        ("SKILLS_SPECS = [\n{'path': 'x', 'id': 'y'}]", "line 2: id: Unknown key."),
        ("SKILLS_SPECS = [{'path': 'x', 'namespace': 'y'}]", "line 1: Give either a path"),
        ("SKILLS_SPECS = [{}]", "line 1: Give either a path"),
        ("SKILLS_SPECS = [" + "{'path': 'x'}," * 101 + "]", "has 101 entries; at most 100 are allowed."),
        ("SKILLS_SPECS = " + "(" * 5_000 + ")" * 5_000, "skills_descriptor.py"),
        ("SKILLS_SPECS = " + "-" * 30_000 + "1", "skills_descriptor.py"),
        ("#" * 70_000, "is longer than 64 KiB."),
        ("SKILLS_SPECS = []\x00", "NUL character"),
    ],
)  # fmt: skip
def test_a_bad_descriptor_is_refused_and_never_executed(descriptor: str, problem: str) -> None:
    found = refused(THREE | {"skills_descriptor.py": descriptor.encode()})

    assert found.startswith("skills_descriptor.py") and problem in found


def test_skills_are_named_in_one_place_only() -> None:
    files = THREE | {"skills_descriptor.py": b"SKILLS_SPECS = [{'path': 'skills'}]"}

    assert "either in bundle.toml or in skills_descriptor.py, not in both" in refused(files, SkillSpec(path="skills"))


def test_a_bundle_without_skills_has_none() -> None:
    assert not read_skills(THREE, [])
    assert not read_skills({"bundle.toml": b"", "docs/a/b/SKILL.md": text("b")})


def test_recommended_tools_are_read() -> None:
    tools = (
        b"tools:\n  - id: exec_tools.execute_code_python\n    role: sums\n    why: Adds\n      amounts.\n  - id: x.y\n"
    )

    (skill,) = read_skills({PATH: text(), f"{FOLDER}/tools.yaml": tools})

    assert [(tool.id, tool.role, tool.why) for tool in skill.tools] == [
        ("exec_tools.execute_code_python", "sums", "Adds amounts."), ("x.y", "", "")
    ]  # fmt: skip


def test_sources_have_the_numbers_that_they_are_cited_by() -> None:
    sources = b"sources:\n- {url: 'https://a.example/x', title: A}\n- {sid: 7, url: 'https://b.example/', text: B}\n"

    (skill,) = read_skills({PATH: text(), f"{FOLDER}/sources.yaml": sources})

    assert {sid: (row.title, row.url, row.text) for sid, row in skill.sources.items()} == {
        1: ("A", "https://a.example/x", ""),
        7: ("https://b.example/", "https://b.example/", "B"),
    }


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tools.yaml", "tools:\n- name: x", "line 2: tools 1.id is missing."),
        ("tools.yaml", "tools:\n- id: x y", "line 2: tools 1.id is invalid"),
        ("tools.yaml", "- x", "line 1: this must be a mapping of keys to values"),
        ("tools.yaml", "tools: x", "line 1: tools must be a list."),
        ("sources.yaml", "sources:\n- title: x", "line 2: sources 1.url is missing."),
        ("sources.yaml", "sources:\n- url: https://a.example\n- url: file:///etc/passwd", "line 3: sources 2.url must"),
        ("sources.yaml", "sources:\n- url: https://a.example\n  sid: x", "line 3: sources 1.sid must be a whole"),
        ("sources.yaml", "sources:\n- {url: https://a.example, sid: 2}\n- url: https://b.example", "number 2."),
    ],
)  # fmt: skip
def test_bad_tools_and_sources_are_refused(name: str, content: str, problem: str) -> None:
    found = refused({PATH: text(), f"{FOLDER}/{name}": content.encode()})

    assert found.startswith(f"{FOLDER}/{name}, line ") and problem in found


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=20), max_size=5))
def test_any_names_are_refused_or_can_be_read_by_their_refs(names: dict[str, bytes]) -> None:
    try:
        skills = read_skills({PATH: text()} | {f"{FOLDER}/{name}": data for name, data in names.items()})
    except Invalid as invalid:
        assert invalid.detail
        return
    for skill in skills:
        for file in skill.files.values():
            ref = parse_ref(file.ref)
            assert isinstance(ref, SkillRef) and skills.find(ref) == (skill, file)
            assert skills.select(file.ref).files == (file,)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda front: f"---\n{front}\n---\nDo it.".encode()))
def test_any_content_is_read_or_refused(data: bytes) -> None:
    try:
        assert len(read_skills({PATH: data})) == 1
    except Invalid as invalid:
        assert invalid.detail.startswith(PATH)


def test_files_of_a_skill_are_selected_by_folder_or_name() -> None:
    skills = read_skills({PATH: text(), f"{FOLDER}/scripts/a.py": b"1", f"{FOLDER}/scripts/b.py": b"2"})

    for spelling in ("sk:support.refunds", "sk:support.refunds/"):
        whole = skills.select(spelling)
        assert (whole.ref, whole.path, len(whole.files)) == ("sk:support.refunds/", "skills/support.refunds/", 3)
    for spelling in ("sk:support.refunds/scripts", "sk:support.refunds/scripts/"):
        folder = skills.select(spelling)
        assert (folder.ref, len(folder.files), folder.is_folder) == ("sk:support.refunds/scripts/", 2, True)
    with pytest.raises(NotFound, match=r"has no such file or folder; it has SKILL.md, scripts/a.py"):
        skills.select("sk:support.refunds/script")
    with pytest.raises(NotFound, match=r"its skills are support.refunds"):
        skills.select("sk:support.refund")


GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "write-a-skill.md"


def test_the_bundle_in_the_guide_is_read_as_it_says() -> None:
    blocks = re.findall(r"^`([\w./-]+)`:\n```\w+\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    files = {path: block.encode() for path, block in blocks}
    specs = [SkillSpec.model_validate(spec) for spec in tomllib.loads(files["bundle.toml"].decode())["skills"]]
    descriptor = files.pop("skills_descriptor.py")

    skills = read_skills(files, specs, load_platform_skills())

    assert [skill.id for skill in skills][-1] == "support.refunds"
    described = read_skills(files | {"skills_descriptor.py": descriptor}, None, load_platform_skills())
    assert [skill.id for skill in described] == [skill.id for skill in skills]
    _, script = skills.find(SkillRef("support", "refunds", "scripts/refund.py"))
    assert script.data.startswith(b"def refund")
    refunds = [*skills][-1]
    assert refunds.tools[0].id == "desk.find_order" and refunds.sources[1].title == "Consumer rights"
    for limit in ("50", "16,000", "32,000", "200", "5 MiB", "32 KiB", "8 levels", "20 tools", "100 sources"):
        assert limit in GUIDE.read_text()


def test_the_platform_has_skills() -> None:
    skills = load_platform_skills()

    assert [skill.id for skill in skills] == ["public.pdf-press", "public.pptx-press", "public.xlsx-press"]
    assert all("scripts/" in " ".join(skill.files) and skill.tools for skill in skills)
    assert render_catalog(skills).count("\n- sk:public.") == 2
