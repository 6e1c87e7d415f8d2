"""What is made ready before a program is known: variables, folders, the list of fonts, imports."""

import json
import sys

from everturn.execution.messages import RunLimits, Start
from executor.environment import build_environment, build_run_environment, import_ahead, save_folders


def test_the_environment_is_the_allow_list():
    assert set(build_environment()) == {
        *("WORKDIR", "OUTPUT_DIR", "AGENT_IO_CONTEXT", "HOME", "TMPDIR", "PATH", "LANG", "LC_ALL", "TZ"),
        *("MPLBACKEND", "MPLCONFIGDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }


def test_a_program_learns_its_tools_and_limits_from_the_environment():
    start = Start(
        "run-1", "pass", ("a.csv",), RunLimits(cpu_s=7), "n", ("web_tools.web_search", "web_tools.web_fetch"), 1
    )

    environment = build_run_environment(start)

    assert (environment["EXECUTION_ID"], environment["RUNTIME_TOOL_MODULES"]) == ("run-1", "web_tools")
    about = json.loads(environment["RUNTIME_GLOBALS_JSON"])
    assert (about["tools"], about["outputs"]) == (["web_tools.web_search", "web_tools.web_fetch"], ["a.csv"])
    assert about["limits"]["cpu_s"] == 7


def test_libraries_find_their_folders_and_the_list_of_fonts(tmp_path):
    made, work = tmp_path / "made", tmp_path / "work"
    made.mkdir()
    (made / "fontlist.json").write_text("fonts")

    save_folders(str(work), str(made))

    environment = build_environment(str(work))
    assert (work / ".config" / "matplotlib" / "fontlist.json").read_text() == "fonts"
    assert environment["MPLCONFIGDIR"] == str(work / ".config" / "matplotlib")
    assert (work / ".tmp").is_dir()
    assert environment["TMPDIR"] == str(work / ".tmp")


def test_without_a_list_of_fonts_the_folders_are_there_all_the_same(tmp_path):
    save_folders(str(tmp_path), str(tmp_path / "absent"))

    assert (tmp_path / ".tmp").is_dir()


def test_modules_are_imported_ahead_and_those_that_can_not_be_are_named():
    failures = import_ahead(("colorsys", "nowhere.at_all"))

    assert "colorsys" in sys.modules
    assert failures == ("nowhere.at_all can't be imported: ModuleNotFoundError: No module named 'nowhere'",)


def test_nothing_is_imported_where_nothing_is_asked_for():
    before = set(sys.modules)

    assert import_ahead(()) == ()
    assert set(sys.modules) == before
