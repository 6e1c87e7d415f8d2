"""What an author writes in a bundle's folder: what is read, what is refused and with which message."""

import os
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from chat_proc.bundles import bundle as bundles
from chat_proc.bundles.bundle import Bundle, read_folder, sign_folder, unpack
from chat_proc.bundles.folders import BundleFolders, Found
from chat_proc.bundles.manifest import (
    MAX_INSTRUCTIONS_CHARS,
    BadBundle,
    BundleProps,
    Manifest,
    ModelRoleName,
    ReactConfig,
    TurnBudget,
    read_manifest,
)
from chat_proc.settings import OperatorConfig
from everturn.core.identity import Role

DESK = """\
# The agent of the support team.
id = "desk"
title = "Support desk"
description = "Opens tickets."
icon = "🎫"
starters = ["Open a ticket", "Which tickets are open?"]
roles = ["paid", "admin"]

[models]
decision = "openai:gpt-5"

[react]
max_iterations = 5
codec = "json"

[config.react]
max_iterations = 7

[limits]
cost_usd = 0.5
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md").replace("_toml", ".toml").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def settle(folders: BundleFolders) -> dict[str, str]:
    """The errors after the changes of a folder were found twice."""
    folders.scan()
    return {bundle_id: found.error for bundle_id, found in folders.scan().items()}


def test_a_bundle_is_its_manifest_instructions_and_files(tmp_path: Path) -> None:
    write(tmp_path, bundle_toml=DESK, instructions_md="You open tickets.\r\n", tools__desk_py="x = 1\n")

    found = read_folder(tmp_path)

    about = found.manifest
    assert (found.id, about.shown_title, about.instructions) == ("desk", "Support desk", "You open tickets.")
    assert (about.agent.max_iterations, about.agent.codec, about.limits.cost_usd) == (7, "json", 0.5)
    assert dict(found.files) == {"tools/desk.py": b"x = 1\n"}
    listed = found.list(is_default=True, error="Newer content is broken.")
    assert (listed.title, listed.icon, listed.roles) == ("Support desk", "🎫", ("admin", "paid"))
    assert (listed.starters[0], listed.is_default, listed.error) == ("Open a ticket", True, "Newer content is broken.")


def test_an_id_and_instructions_are_enough(tmp_path: Path) -> None:
    found = read_folder(write(tmp_path, bundle_toml='id = "mini"', instructions_md="Be brief."))

    assert found.manifest == Manifest(id="mini", instructions="Be brief.")
    assert found.manifest.shown_title == "mini"
    assert Manifest(id="default").shown_title == "Everturn"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('title = "x"', "bundle.toml: id: It is missing."),
        ('id = "a"\ndescripton = "x"', "bundle.toml, line 2: descripton: Unknown key. Perhaps you mean description."),
        ('id = "a b"', "bundle.toml, line 1: id: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._@-]*$'."),
        ('id = "a"\n\n[react]\ncodec = "xml"', "bundle.toml, line 4: react.codec: Input should be"),
        (
            'id = "a"\n[react]\nmax_iteration = 3',
            "bundle.toml, line 3: react.max_iteration: Unknown key. Perhaps you mean max_iterations.",
        ),
        (
            'id = "a"\n[react]\nrounds = 3',
            "bundle.toml, line 3: react.rounds: Unknown key. The keys here are: codec, max",
        ),
        ('id = "a"\n[mcp.crm]\nurll = "x"', "bundle.toml, line 3: mcp.crm.urll: Unknown key. Perhaps you mean url."),
        ('id = "a"\n[[mcp]]\nurl = "x"', "bundle.toml, line 2: mcp: Write [mcp.NAME], with one bracket"),
        ('id = "a"\n[[react]]\ncodec = "x"', "bundle.toml, line 2: react: Write [react], with one bracket"),
        (
            'id = "a"\n[[tools]]\nref = "a.py"\nalias = "a"\n[tools.tools.f]\nefect = "pure"',
            "bundle.toml, line 6: tools 1.tools.f.efect: Unknown key. Perhaps you mean effect.",
        ),
        (
            'id = "a"\n[workspace]\nrepository = "https://example.com/a.git"',
            'bundle.toml, line 2: workspace: Only a workspace with the mode "git" can have a repository.',
        ),
        (
            'id = "a"\n[workspace]\nmode = "git"\nref = "main"',
            "bundle.toml, line 2: workspace: There is no repository for ref, token and publish.",
        ),
        (
            'id = "a"\n[workspace]\nmode = "git"\nrepository = "https://example.com/a.git"\npublish = "agents/*"',
            "bundle.toml, line 2: workspace: Publishing needs a token.",
        ),
        (
            'id = "a"\n[workspace]\nmode = "git"\nrepository = "https://example.com/a.git"\npublish = "a//*"',
            "bundle.toml, line 5: workspace.publish: must be the name of a branch, in which * stands for any",
        ),
        (
            'id = "a"\n[workspace]\nmode = "git"\nrepository = "http://example.com/a.git"',
            "bundle.toml, line 4: workspace.repository: must be the https:// address of a git repository",
        ),
        ('id = "a"\nreact.codecs = 3', "bundle.toml, line 2: react.codecs: Unknown key."),
        (
            'id = "a"\n[models]\ndecider = "x:y"',
            "bundle.toml, line 3: models.decider: Unknown key. The keys here are: decision,",
        ),
        ('id = "a"\ntitle = "b\\nc"', "bundle.toml, line 2: title: It must be one line without control characters."),
        ('id = "a"\nroles = ["boss"]', "bundle.toml, line 2: roles 1: Input should be 'anonymous', 'registered',"),
        ('id = "a"\nstarters = [""]', "bundle.toml, line 2: starters 1: String should have at least 1 character."),
        ("id = a", "bundle.toml, line 1: Invalid value; a text needs quotes (at column 6)."),
        ('id = "a"\n[limits]\ntokens = 0\nx = 1', "bundle.toml, line 3: limits.tokens: Input should be greater than"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_line(toml: str, message: str) -> None:
    with pytest.raises(BadBundle) as refused:
        read_manifest(toml.encode())

    assert refused.value.detail.startswith(message)


@pytest.mark.parametrize(
    ("table", "written", "message"),
    [
        ("react", 'max_iterations = "8"', "It must be a whole number, without quotes."),
        ("react", "max_iterations = true", "It must be a whole number."),
        ("host", 'disk_mib = "99"', "It must be a whole number, without quotes."),
        ("limits", 'cost_usd = "1"', "It must be a number, without quotes."),
        ("knowledge", 'validate_refs = "false"', "It must be true or false, without quotes."),
        ("mcp.x", 'url = "https://x/y"\ntimeout_s = "5"', "It must be a number, without quotes."),
        ("mcp.x", 'url = "https://x/y"\nin_programs = "false"', "It must be true or false, without quotes."),
        ("mcp.x", 'url = "https://x/y"\nasks_after_untrusted = "no"', "It must be true or false, without quotes."),
        ("mcp.x", 'url = "https://x/y"\nrequires_approval = "true"', "It must be true or false, without quotes, or a"),
        ("[tools]", 'ref = "a"\nalias = "a"\ntools.f.timeout_s = "5"', "It must be a number, without quotes."),
        ("[tools]", 'ref = "a"\nalias = "a"\ntools.f.untrusted = "no"', "It must be true or false, without quotes."),
    ],
)
def test_a_number_or_a_truth_value_is_no_text(table: str, written: str, message: str) -> None:
    key = written.splitlines()[-1].partition(" ")[0]
    with pytest.raises(BadBundle) as refused:
        read_manifest(f'id = "a"\n[{table}]\n{written}'.encode())

    assert f", line {2 + len(written.splitlines())}: " in refused.value.detail
    assert f"{key}: {message}" in refused.value.detail


@pytest.mark.parametrize("icon", ["", "X", "HR", "7é", "हि", "📦", "❤️", "☎", "👨‍👩‍👧‍👦", "👩🏽‍🚀", "🇺🇦", "1️⃣", "#️⃣"])
def test_an_icon_is_one_emoji_or_two_letters(icon: str) -> None:
    assert Manifest(id="a", icon=icon).icon == icon


@pytest.mark.parametrize("icon", ["hammer", "A B", "📦📦", "📦 box", "<i", "-", "🇺🇦🇺", "👨‍", "\u200b"])
def test_another_icon_is_refused_with_its_line(icon: str) -> None:
    with pytest.raises(BadBundle, match="line 2: icon: It must be one emoji, or one or two letters or digits"):
        read_manifest(f'id = "a"\nicon = "{icon}"'.encode())


def test_the_knowledge_of_a_bundle_is_one_table_or_several() -> None:
    one = read_manifest(b'id = "a"\n[knowledge]\nrepo = "https://github.com/a/b.git"\ndocs_root = "docs"\n')
    two = read_manifest(b'id = "a"\n[[knowledge]]\nname = "one"\n[[knowledge]]\nname = "two"\n')

    assert [space.roots for space in one.knowledge] == [{"docs": "docs"}]
    assert [space.name for space in two.knowledge] == ["one", "two"]
    assert Manifest.model_validate_json(one.write()) == one
    with pytest.raises(BadBundle, match=r"bundle\.toml, line 3: knowledge 1\.docs_root: The path '\.\./x' must be"):
        read_manifest(b'id = "a"\n[knowledge]\ndocs_root = "../x"\n')


def test_all_problems_of_a_manifest_are_named_at_once() -> None:
    with pytest.raises(BadBundle) as refused:
        read_manifest(b'id = "a"\nicons = "x"\n[limits]\ntokens = 0\n')

    assert "line 2: icons: Unknown key." in refused.value.detail
    assert "line 4: limits.tokens: Input should be greater than or equal to 1." in refused.value.detail


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (b"x" * (MAX_INSTRUCTIONS_CHARS + 1), "instructions.md has 32001 characters; 32000 are allowed."),
        (b"x" * 200_000, "instructions.md is longer than 128000 bytes."),
        (b"a\nb\xff", "instructions.md, line 2: The text is not valid UTF-8."),
        (b"a\x1b[31m", "instructions.md: instructions: It must not contain control characters."),
    ],
)
def test_wrong_instructions_are_refused(instructions: bytes, message: str) -> None:
    with pytest.raises(BadBundle) as refused:
        read_manifest(b'id = "a"', instructions=instructions)

    assert refused.value.detail == message


def test_instructions_in_two_places_are_refused() -> None:
    with pytest.raises(BadBundle, match="not in both"):
        read_manifest(b'id = "a"\ninstructions = "x"', instructions=b"y")


def test_an_operator_overrides_key_by_key() -> None:
    manifest = read_manifest(DESK.encode())

    props = BundleProps.model_validate({"title": "Desk", "react": {"codec": "native"}, "limits": {"tokens": 9}})
    changed = manifest.override(props)

    assert (changed.title, changed.description) == ("Desk", "Opens tickets.")
    assert (changed.react.codec, changed.react.max_iterations, changed.agent.max_iterations) == ("native", 5, 7)
    assert (changed.limits.tokens, changed.limits.cost_usd) == (9, 0.5)


def test_the_digest_changes_with_every_part_and_with_nothing_else(tmp_path: Path) -> None:
    base = read_folder(write(tmp_path, bundle_toml=DESK, a__b_py="1"))
    digests = {
        base.digest,
        Bundle(base.manifest, {"a/c.py": b"1"}).digest,
        Bundle(base.manifest, {"a/b.py": b"2"}).digest,
        base.override(BundleProps(title="New")).digest,
    }

    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("x")
    write(tmp_path, _git__config="x", tests__talk_toml="x", knowledge__big_md="x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    (tmp_path / "_git").joinpath("config").unlink()

    assert len(digests) == 4
    assert read_folder(tmp_path).digest == base.digest
    assert unpack(base.pack()) == base and unpack(base.pack()).digest == base.digest


def test_links_within_a_bundle_are_followed_as_in_kubernetes(tmp_path: Path) -> None:
    write(tmp_path / "..2026", bundle_toml='id = "a"', instructions_md="Hello.")
    (tmp_path / "..data").symlink_to("..2026")
    for name in ("bundle.toml", "instructions.md"):
        (tmp_path / name).symlink_to(f"..data/{name}")

    assert read_folder(tmp_path).manifest.instructions == "Hello."


def test_the_examples_of_the_guide_are_accepted_and_it_has_every_key(repository: Path) -> None:
    guide = (repository / "docs" / "bundles.md").read_text()
    *manifests, config, from_git = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)

    assert [read_manifest(text.encode()).id for text in manifests] == ["support", "analyst"]
    assert OperatorConfig.model_validate(tomllib.loads(config)).ai.default_bundle == "support"
    assert OperatorConfig.model_validate(tomllib.loads(from_git)).bundles["support"].folder == "agents/support"
    (keys,) = re.findall(r"^\| key \|.*?\n\n", guide, re.MULTILINE | re.DOTALL)
    for key in (*Manifest.model_fields, *ReactConfig.model_fields, *TurnBudget.model_fields, *get_args(ModelRoleName)):
        assert any(f"`{text}`" in keys for text in (key, f"[{key}]", f"[[{key}]]", f"[{key}.react]")), key


def test_folders_that_are_links_are_bundles_as_in_kubernetes(tmp_path: Path) -> None:
    for version in ("..1", "..2"):
        write(tmp_path / version / "desk", bundle_toml='id = "desk"', instructions_md=f"Version {version}.")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "desk").symlink_to("..data/desk")
    folders = BundleFolders(tmp_path, {}, "default")

    first = folders.scan()
    # A ConfigMap changes at once.
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    folders.scan()
    second = folders.scan()

    assert [found["desk"].bundle and found["desk"].bundle.manifest.instructions for found in (first, second)] == [
        "Version ..1.",
        "Version ..2.",
    ]


def test_files_that_are_no_content_of_the_bundle_are_refused(tmp_path: Path) -> None:
    def refuse(name: str, make) -> str:
        folder = write(tmp_path / name, bundle_toml='id = "a"')
        make(folder)
        with pytest.raises(BadBundle) as refused:
            read_folder(folder)
        return refused.value.detail

    (tmp_path / "secret").write_text("secret")
    assert refuse("a", lambda folder: (folder / "x").symlink_to("/etc/passwd")) == (
        "x is a link that leads out of the bundle. Copy the file into it."
    )
    assert "leads out" in refuse("b", lambda folder: (folder / "x").symlink_to("../secret"))
    assert "broken link" in refuse("c", lambda folder: (folder / "x").symlink_to("x"))
    assert refuse("d", lambda folder: os.mkfifo(folder / "pipe")) == "pipe is not a file."
    assert refuse("e", lambda folder: (folder / "dir").symlink_to(folder)) == "dir is not a file."
    assert "not a usable name" in refuse("f", lambda folder: (folder / "a\nb").write_text("x"))
    assert refuse("g", lambda folder: (folder / "bundle.toml").unlink()) == "The folder g has no bundle.toml."


def test_a_bundle_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, bundle_toml='id = "a"', a_py="x" * 600, b_py="x" * 600)
    monkeypatch.setattr(bundles, "MAX_FILES", 2)
    with pytest.raises(BadBundle, match="has 3 files; 2 are allowed"):
        read_folder(tmp_path)
    monkeypatch.setattr(bundles, "MAX_FILES", 3)
    monkeypatch.setattr(bundles, "MAX_BYTES", 1_000)
    with pytest.raises(BadBundle, match="more than 0 MiB in total"):
        read_folder(tmp_path)
    monkeypatch.setattr(bundles, "MAX_ENTRIES", 2)
    with pytest.raises(BadBundle, match="more than 2 files and folders"):
        sign_folder(tmp_path)
    monkeypatch.undo()
    (tmp_path.joinpath(*"abcdefghijklmn")).mkdir(parents=True)
    with pytest.raises(BadBundle, match="nested at most 12 deep"):
        read_folder(tmp_path)


def test_a_changed_folder_is_read_when_it_has_settled(tmp_path: Path) -> None:
    folder = write(tmp_path / "desk", bundle_toml=DESK)
    folders = BundleFolders(tmp_path, {}, "default")
    first = folders.scan()["desk"].bundle
    assert first is not None and folders.scan()["desk"].bundle is first

    write(folder, instructions_md="Half of")
    assert folders.scan()["desk"].bundle is first
    write(folder, instructions_md="Half of it is not enough.")
    assert folders.scan()["desk"].bundle is first

    settled = folders.scan()["desk"].bundle

    assert settled is not None and settled.manifest.instructions == "Half of it is not enough."


def test_a_broken_change_keeps_the_last_good_content(tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", bundle_toml=DESK)
    folders = BundleFolders(tmp_path, {}, "default")
    good = folders.scan()["desk"].bundle

    write(folder, bundle_toml="id = ")
    assert settle(folders)["desk"].startswith("bundle.toml: Invalid value")
    assert folders.scan()["desk"].bundle is good

    write(folder, bundle_toml=DESK)
    assert settle(folders) == {"desk": "", "default": ""}


def test_bundles_of_the_configuration_file_need_no_folder(tmp_path: Path) -> None:
    write(tmp_path / "desk", bundle_toml=DESK)
    props = {"desk": BundleProps(title="Our desk"), "mini": BundleProps(instructions="Be brief.")}

    folders = BundleFolders(tmp_path, props, "default")
    found = folders.scan()

    # What has not changed is not built again at each scan: that would compute the digest of all its files.
    assert folders.scan()["desk"].bundle is found["desk"].bundle
    manifests = {bundle_id: each.bundle.manifest for bundle_id, each in found.items() if each.bundle}
    assert list(manifests) == ["desk", "mini", "default"]
    assert (manifests["desk"].title, manifests["desk"].icon) == ("Our desk", "🎫")
    assert manifests["mini"] == Manifest(id="mini", instructions="Be brief.")


@pytest.mark.parametrize("default", ["default", "suport"])
def test_a_table_without_a_folder_and_instructions_makes_no_agent(tmp_path: Path, default: str) -> None:
    write(tmp_path / "support", bundle_toml='id = "support"')
    props = {"suport": BundleProps(title="Support", roles=(Role.PAID,)), "default": BundleProps(icon="🎫")}

    found = BundleFolders(tmp_path, props if default == "default" else {}, default).scan()

    why = {
        "default": "which the configuration file names. Correct this id, or set instructions in [bundles.suport] to "
        "make it a bundle.",
        "suport": "which is the default one. If you changed its id, start `everturn bundle run` again, or set "
        "ai.default_bundle to the new id.",
    }
    assert found["suport"] == Found(
        error=f"No folder and no repository has the bundle suport, {why[default]}", continues=default == "suport"
    )
    assert found["support"].bundle is not None
    assert default != "default" or found["default"].bundle == Bundle(Manifest(id="default", icon="🎫"))


def test_another_bundle_than_the_default_one_is_refused_the_id_default(tmp_path: Path) -> None:
    write(tmp_path / "desk", bundle_toml=DESK)
    write(tmp_path / "other", bundle_toml='id = "default"')

    found = BundleFolders(tmp_path, {}, "desk").scan()
    as_default = BundleFolders(tmp_path, {}, "default").scan()

    assert found["desk"].bundle is not None and found["default"].bundle is None
    assert found["default"].error == "The id default means the default bundle, which is desk. Choose another id."
    assert as_default["default"].bundle is not None and not as_default["default"].error


def test_two_folders_with_one_id_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "a", bundle_toml=DESK)
    write(tmp_path / "b", bundle_toml=DESK)

    found = BundleFolders(tmp_path, {}, "default").scan()["desk"]

    assert found.bundle is not None
    assert found.error == "The folder b has the id desk of another bundle. Change one of the two ids."


def test_no_other_folder_takes_the_id_of_one_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / "desk", bundle_toml=DESK)
    folders = BundleFolders(tmp_path, {}, "default")
    served = folders.scan()["desk"].bundle
    write(tmp_path / "a", bundle_toml=f'{DESK}\ndescription = "Takes the id."')

    found = [folders.scan()["desk"] for _ in range(3)][-1]

    assert served is not None and found.bundle is not None and found.bundle.digest == served.digest
    assert found.error == "The folder a has the id desk of another bundle. Change one of the two ids."
    assert folders.find_folder("desk") == tmp_path / "desk"


def test_a_folder_that_cannot_be_read_is_no_reason_to_forget_bundles(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match=r"BUNDLES_DIR=.*/none can't be read: No such file or directory\."):
        BundleFolders(tmp_path / "none", {}, "default").scan()


def test_a_bundle_is_not_a_folder_of_bundles(tmp_path: Path) -> None:
    write(tmp_path / "desk", bundle_toml=DESK)

    with pytest.raises(BadBundle, match=r"BUNDLES_DIR=.*/desk is a bundle\. Name the folder that contains it\."):
        BundleFolders(tmp_path / "desk", {}, "default").scan()
