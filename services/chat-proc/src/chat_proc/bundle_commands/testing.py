"""The command `bundle test`."""

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from chat_proc.bundle_commands.bootstrap import open_stages
from chat_proc.bundle_commands.cases import Case, read_cases
from chat_proc.bundle_commands.code import locate_failure
from chat_proc.bundle_commands.imports import NOT_FOUND, find_wrong_imports
from chat_proc.bundle_commands.playing import (
    CasePlayer,
    PlayedCase,
    collect_logs,
    needs_programs,
    render_output,
)
from chat_proc.bundles.bundle import Bundle, read_folder
from chat_proc.bundles.host.environments import REQUIREMENTS, BadRequirements
from chat_proc.bundles.manifest import MANIFEST, BadBundle, Problem
from everturn.core.errors import EverturnError

FAILED = 1
UNUSABLE = 2
_NO_SECRET = re.compile(r"no secret 'b:([\w.-]{1,100})'|The secret b:([\w.-]{1,100}) is not set")
_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)


async def run_cases(folder: Path, name: str, *, as_json: bool) -> int:
    """Play the tests of the bundle whose names contain `name`, print what happens, and return the exit status."""
    try:
        bundle = read_folder(folder)
        cases = read_cases(folder, name)
    except BadBundle as error:
        return _refuse(error, as_json=as_json)
    return await _play_all(bundle, folder, cases, as_json=as_json)


async def _play_all(bundle: Bundle, folder: Path, cases: Sequence[Case], *, as_json: bool) -> int:
    failed = 0
    with collect_logs() as lines:
        async with open_stages(folder, has_programs=needs_programs(cases)) as open_stage:
            for case in cases:
                lines.clear()
                began_s = time.monotonic()
                try:
                    async with open_stage(bundle, case.content) as stage:
                        failures = await CasePlayer(stage, case, folder).play()
                except BadBundle as error:
                    return _refuse(error, as_json=as_json)
                except BadRequirements as error:
                    return _refuse(BadBundle(Problem(error.detail.rstrip("."), REQUIREMENTS)), as_json=as_json)
                except EverturnError as error:
                    text = (folder / MANIFEST).read_text(encoding="utf-8-sig")
                    found = locate_failure(bundle, text, error.detail or str(error))
                    return _refuse(BadBundle(found, *_find_secrets(case, [found.message])), as_json=as_json)
                output = render_output(lines)
                if failures:
                    said = [*(each.message for each in failures), *output]
                    failures += _find_secrets(case, said)
                    failures += find_wrong_imports(bundle) if any(NOT_FOUND in text for text in said) else []
                played = PlayedCase(case, tuple(failures), output, time.monotonic() - began_s)
                failed += bool(failures)
                _print((_build_json if as_json else _render)(played))
    if not as_json:
        count = len(cases)
        _print(
            f"{failed} of {count} {'test' if count == 1 else 'tests'} failed."
            if failed
            else f"{count} {'test' if count == 1 else 'tests'} passed."
        )
    return FAILED if failed else 0


def _find_secrets(case: Case, texts: Sequence[str]) -> list[Problem]:
    """What to write for the secrets that are not set, as these texts say: tests don't have those of this machine."""
    missing = (match[1] or match[2] for text in texts for match in _NO_SECRET.finditer(text))
    problems: list[Problem] = []
    for name in dict.fromkeys(missing):
        key = name if _BARE_KEY.fullmatch(name) else json.dumps(name)
        why = f"The test sets no secret 'b:{name}'. Write {key} = \"...\" below [secrets]"
        problems.append(case.explain(why, "secrets"))
    return problems


def _refuse(error: BadBundle, *, as_json: bool) -> int:
    if as_json:
        _print(json.dumps({"errors": [asdict(each) for each in error.problems]}, ensure_ascii=False))
    else:
        _print("\n".join(f"error: {each}" for each in error.problems))
    return UNUSABLE


def _render(played: PlayedCase) -> str:
    lines = [f"{'FAILED' if played.failures else 'ok'}  {played.case.name}  {played.seconds:.1f} s"]
    lines += [f"  {problem}" for problem in played.failures]
    if played.failures and played.output:
        lines += ["  Output of the bundle:", *(f"    {text}" for text in played.output)]
    return "\n".join(lines)


def _build_json(played: PlayedCase) -> str:
    return json.dumps(
        {
            "test": played.case.name,
            "passed": not played.failures,
            "seconds": round(played.seconds, 2),
            "failures": [asdict(problem) for problem in played.failures],
            "output": played.output,
        },
        ensure_ascii=False,
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_test(folder: Path, name: str, *, as_json: bool) -> int:
    """`bundle test`; see `run_cases`."""
    return asyncio.run(run_cases(folder, name, as_json=as_json))
