"""react.rg: files and lines, with ready reads."""

import json
import threading
from itertools import count

import pytest
from pydantic import ValidationError

from chat_proc.tools.context.read import ReadItem
from chat_proc.tools.workspace import search as rg_module
from chat_proc.tools.workspace.checkout import PullTool
from chat_proc.tools.workspace.search import RgParams, RgTool
from everturn.files.model import ArtifactKind
from everturn.files.objects import CHUNK_BYTES

APP = "import os\n\n\ndef total(rows):\n    return sum(rows)\n"


@pytest.fixture
def tool(history, objects) -> RgTool:
    return RgTool(history, objects)


@pytest.fixture
def put(stored, timeline):
    def write(name: str, data: str | bytes, *, mime: str = "text/plain", kind=ArtifactKind.FILE):
        body = data.encode() if isinstance(data, str) else data
        artifact = stored.put("turn_2", name, body, kind=kind, mime=mime)
        timeline.result("call_0", "react.write", "ok", artifact)
        return artifact

    return write


async def test_a_match_has_line_preview_context_and_a_read_that_is_ready(play, timeline, tool, put) -> None:
    put("src/app.py", APP)
    put("notes.md", "no match")

    outcome = await play(tool, timeline, {"root": "files/", "pattern": r"def \w+", "context_lines": 1})

    result = json.loads(outcome.text)
    assert result == {
        "root": "files/",
        "hits": [
            {
                "path": "turn_2/files/src/app.py",
                "logical_path": "fi:turn_2.files/src/app.py",
                "size_bytes": len(APP),
                "text_symbols": len(APP),
                "line_count": 5,
                "matches": [
                    {
                        "line": 4,
                        "preview": "def total(rows):",
                        "context_lines": [{"line": 3, "text": ""}, {"line": 5, "text": "    return sum(rows)"}],
                        "read_item": {"path": "fi:turn_2.files/src/app.py", "line_start": 1, "line_count": 5},
                    }
                ],
            }
        ],
        "hit_count": 1,
        "match_count": 1,
        "looked_at": 2,
        "scanned_files": 2,
    }
    assert ReadItem.model_validate(result["hits"][0]["matches"][0]["read_item"])


async def test_names_alone_are_found_without_reading_contents(play, timeline, tool, put, objects) -> None:
    put("a.py", "x")
    put("b.md", "x")
    objects.stored.clear()

    outcome = await play(tool, timeline, {"name_regex": r"\.py$"})

    assert [hit["path"] for hit in json.loads(outcome.text)["hits"]] == ["turn_2/files/a.py"]


async def test_only_what_is_local_is_searched(play, stored, history, timeline, tool) -> None:
    stored.put("turn_1", "old.py", b"needle")
    before = json.loads((await play(tool, timeline, {"root": "turn_1/", "pattern": "needle"})).text)

    await play(PullTool(history), timeline, {"paths": ["fi:turn_1.files/"]})

    after = json.loads((await play(tool, timeline, {"root": "turn_1/", "pattern": "needle"})).text)
    assert "hits" not in before
    assert 'react.pull {"paths": ["fi:turn_1.files/"]}' in before["notices"][0]
    assert after["hits"][0]["logical_path"] == "fi:turn_1.files/old.py"


async def test_skipped_binary_files_are_reported(play, timeline, tool, put) -> None:
    put("a.png", b"needle", mime="image/png")
    put("nul.txt", b"needle\x00")
    put("a.txt", "needle")

    result = json.loads((await play(tool, timeline, {"pattern": "needle"})).text)

    assert [hit["path"] for hit in result["hits"]] == ["turn_2/files/a.txt"]
    assert result["notices"] == ["2 binary files were not searched; a program can open them."]


async def test_crlf_bom_and_a_name_without_an_extension_are_ordinary(play, timeline, tool, put) -> None:
    put("Makefile", b"\xef\xbb\xbfall:\r\n\techo\r\n")

    result = json.loads((await play(tool, timeline, {"root": "files/Makefile", "pattern": "^all:$"})).text)

    assert result["hits"][0]["matches"][0]["line"] == 1
    assert result["hits"][0]["line_count"] == 2


@pytest.mark.parametrize("params", [{"pattern": "("}, {"name_regex": "("}, {"pattern": "(?=a)"}])
async def test_an_invalid_expression_is_an_error(play, timeline, tool, put, params) -> None:
    put("a.txt", "x")

    outcome = await play(tool, timeline, params)

    assert outcome.status == "error"
    assert "regular expression" in json.loads(outcome.text)["error"]


async def test_an_invalid_root_is_an_error(play, timeline, tool) -> None:
    outcome = await play(tool, timeline, {"root": "/etc", "pattern": "root"})

    assert outcome.status == "error"


async def test_a_file_can_be_a_root_and_a_missing_root_is_reported(play, timeline, tool, put) -> None:
    put("a.txt", "x")

    there = json.loads((await play(tool, timeline, {"root": "files/a.txt", "pattern": "x"})).text)
    missing = json.loads((await play(tool, timeline, {"root": "files/none", "pattern": "x"})).text)

    assert there["hit_count"] == 1
    assert missing["notices"] == ["There are no local files under files/none."]


async def test_limits_on_matches_and_files_are_reported(play, timeline, tool, put) -> None:
    for number in range(4):
        put(f"f{number}", "x\nx\nx\n")

    matches = json.loads((await play(tool, timeline, {"pattern": "x", "max_matches": 4})).text)
    files = json.loads((await play(tool, timeline, {"pattern": "x", "max_files": 2})).text)

    assert (matches["match_count"], files["hit_count"]) == (4, 2)
    assert "The limit max_matches=4" in matches["notices"][0]
    assert "The limit max_files=2" in files["notices"][0]


async def test_a_partially_searched_file_is_reported(play, timeline, tool, put) -> None:
    put("big.log", b"early\n" + b"x" * rg_module.MAX_FILE_BYTES + b"\nlate\n")

    result = json.loads((await play(tool, timeline, {"pattern": "early|late"})).text)

    assert [match["preview"] for match in result["hits"][0]["matches"]] == ["early"]
    assert "Only the first" in result["notices"][0]


async def test_a_search_beyond_its_time_ends_with_what_it_has(play, history, objects, timeline, put) -> None:
    put("a.txt", "x\n")
    put("b.txt", "x\n")
    clock = count(0, 15)

    result = json.loads(
        (await play(RgTool(history, objects, monotonic=lambda: next(clock)), timeline, {"pattern": "x"})).text
    )

    assert result["hit_count"] == 1
    assert "stopped after 20 s" in result["notices"][0]


async def test_files_are_decoded_and_hits_rendered_off_the_event_loop(play, timeline, tool, put, monkeypatch) -> None:
    used: dict[str, int] = {}

    class Decoder(rg_module.TextDecoder):
        def decode(self, data: bytes, *, final: bool = False) -> str:
            used["decode"] = threading.get_ident()
            return super().decode(data, final=final)

    def render(result: object) -> str:
        used["render"] = threading.get_ident()
        return json.dumps(result)

    monkeypatch.setattr(rg_module, "TextDecoder", Decoder)
    monkeypatch.setattr(rg_module, "render_result", render)
    put("a.txt", "needle")

    await play(tool, timeline, {"pattern": "needle"})

    assert used.keys() == {"decode", "render"}
    assert threading.get_ident() not in used.values()


async def test_a_character_between_two_chunks_of_a_file_is_found(play, timeline, tool, put) -> None:
    put("a.txt", "x" * (CHUNK_BYTES - 1) + "ä needle")

    result = json.loads((await play(tool, timeline, {"pattern": "ä needle"})).text)

    assert result["match_count"] == 1


async def test_an_unreadable_file_is_reported_and_the_rest_searched(play, timeline, tool, put, objects) -> None:
    gone = put("gone.txt", "needle 1")
    put("a.txt", "needle 2")
    del objects.stored[gone.object_key]

    result = json.loads((await play(tool, timeline, {"pattern": "needle"})).text)

    assert result["hit_count"] == 1
    assert "gone.txt" in result["notices"][0]


@pytest.mark.parametrize(
    "params", [{}, {"root": "files/"}, {"pattern": "x", "max_matches": 0}, {"pattern": "x", "n": 1}]
)
def test_a_search_for_nothing_is_refused(params) -> None:
    with pytest.raises(ValidationError):
        RgParams.model_validate(params)
