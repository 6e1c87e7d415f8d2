"""What `make run` shows."""

from pathlib import Path

from everturn_local.banner import EXAMPLES, Access, build_choices, build_commands, render_banner
from everturn_local.images.choice import ContainerChoice
from everturn_local.servers.clamd import ClamdChoice
from everturn_local.web.choice import WebChoice

REPORTS = {
    "ingress-1": {"url": "http://127.0.0.1:8080", "antivirus": "none", "antivirus_why": "no clamd configured"},
    "worker-1": {"model": "offline", "why": "no key found", "sandbox": "bubblewrap", "sandbox_why": "it works here"},
    "worker-2": {"model": "offline", "why": "no key found", "sandbox": "bubblewrap", "sandbox_why": "it works here"},
}

CLAMD = ClamdChoice(Path("/usr/sbin/clamd"), None, "it knows the test file only")
OPEN = Access(is_open=True)
WEB = WebChoice(Path("/dist"), "built with the Node of this machine")


def test_the_banner_shows_url_choices_reasons_and_how_to_use_it():
    banner = render_banner(
        REPORTS,
        containers=ContainerChoice(True, "engine 1"),
        clamd=CLAMD,
        web=WEB,
        home=Path("/h"),
        start_s=3.21,
        access=OPEN,
    )

    for text in ("3.2 s", "http://127.0.0.1:8080", "offline (no key found)", "bubblewrap (it works here)", "/h/logs"):
        assert text in banner
    assert "none (no clamd configured)" in banner
    assert "containers used (engine 1)" in banner
    assert "clamd      started (it knows the test file only)" in banner
    assert "web client http://127.0.0.1:8080 (built with the Node of this machine)" in banner
    assert ".venv/bin/everturn chat" in banner


def test_in_production_the_banner_says_how_to_make_a_key_and_use_it():
    access = Access(is_open=False, operate="EVERTURN_HOME=/h make operate")

    banner = render_banner(
        REPORTS, containers=ContainerChoice(True, "e"), clamd=CLAMD, web=WEB, home=Path("/h"), start_s=1, access=access
    )

    assert 'EVERTURN_HOME=/h make operate DO="keys create --tenant default --project default --user NAME"' in banner
    assert banner.index("keys create") < banner.index("export EVERTURN_TOKEN=KEY") < banner.index("everturn chat")
    assert "Try it" not in banner


def test_the_banner_explains_a_missing_page():
    none = WebChoice(None, "no Node here: make setup installs one")

    banner = render_banner(
        REPORTS,
        containers=ContainerChoice(True, "engine 1"),
        clamd=CLAMD,
        web=none,
        home=Path("/h"),
        start_s=1,
        access=OPEN,
    )

    assert "web client not available (no Node here: make setup installs one)" in banner


def test_the_banner_explains_missing_containers():
    choice = ContainerChoice(False, "no container engine responds: start Docker, then make images")

    banner = render_banner(REPORTS, containers=choice, clamd=CLAMD, web=WEB, home=Path("/h"), start_s=1, access=OPEN)

    assert "containers not used (no container engine responds: start Docker, then make images)" in banner


def test_equal_choices_are_shown_once():
    assert build_choices(REPORTS)["model"] == "offline (no key found)"


def test_different_choices_are_all_shown():
    reports = {**REPORTS, "worker-2": {"model": "openai:x", "why": "OPENAI_API_KEY is set"}}

    assert build_choices(reports)["model"] == "offline (no key found); openai:x (OPENAI_API_KEY is set)"


def test_unreported_choices_are_not_shown():
    assert build_choices({"ingress-1": {"url": "http://127.0.0.1:8080"}}) == {}


def test_commands_contain_an_address_other_than_the_default():
    assert build_commands("http://127.0.0.1:9", EXAMPLES)[0].startswith("EVERTURN_URL=http://127.0.0.1:9 ")
    assert build_commands("http://127.0.0.1:8080", EXAMPLES)[0].startswith(".venv/bin/everturn")


def test_the_file_that_the_banner_names_is_there():
    [command] = [text for text in EXAMPLES if "--file" in text]

    assert (Path(__file__).parents[3] / command.split("--file ")[1]).is_file()
