"""The lines that `make run` prints when the platform is ready: URL, choices with reasons, and how to use it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn_local.images.choice import ContainerChoice
from everturn_local.servers.clamd import ClamdChoice
from everturn_local.web.choice import WebChoice

Reports = Mapping[str, Mapping[str, str]]

CHOICES = (
    ("model", "why"),
    ("sandbox", "sandbox_why"),
    ("embedder", "embedder_why"),
    ("antivirus", "antivirus_why"),
)
"""Fields of the ready lines: a choice and its reason."""


EXAMPLES: Final = (
    '.venv/bin/everturn chat "What can you do?"',
    '.venv/bin/everturn chat "Revenue by region, with a chart" --file docs/sales.csv',
)
"""Commands to try in a checkout of the repository."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who can use the platform: everybody in development mode, people with a token or key in production.

    `operate` is the prefix of an operator's command, `examples` are commands to try.
    """

    is_open: bool
    operate: str = "make operate"
    examples: tuple[str, ...] = EXAMPLES


def render_banner(
    reports: Reports,
    *,
    containers: ContainerChoice,
    clamd: ClamdChoice,
    web: WebChoice,
    home: Path,
    start_s: float,
    access: Access,
) -> str:
    """`reports` are the ready lines of the services by name; the banner shows only what they report."""
    url = next((report["url"] for report in reports.values() if "url" in report), "")
    lines = ["", f"Everturn is ready after {start_s:.1f} s", "", f"  {'url':<10} {url}"]
    lines += [f"  {name:<10} {text}" for name, text in build_choices(reports).items()]
    lines += [f"  {'containers':<10} {'used' if containers.chosen else 'not used'} ({containers.why})"]
    lines += [f"  {'clamd':<10} {'started' if clamd.program else 'not started'} ({clamd.why})"]
    lines += [f"  {'web client':<10} {url if web.dist else 'not available'} ({web.why})"]
    lines += [f"  {'state':<10} {home}", f"  {'logs':<10} {home / 'logs'}", ""]
    if access.is_open:
        lines += [
            "Try it from another terminal:",
            "",
            *(f"  {command}" for command in build_commands(url, access.examples)),
        ]
    else:
        lines += _render_keys(url, access)
    return "\n".join([*lines, "", "Ctrl-C stops everything. Conversations and files are kept.", ""])


def _render_keys(url: str, access: Access) -> list[str]:
    """How a person gets access, in production."""
    return [
        "Production mode: each request needs a token of your identity provider or an API key. "
        "Create a key in another terminal:",
        "",
        f'  {access.operate} DO="keys create --tenant default --project default --user NAME"',
        "",
        "The key is shown only once. Paste it into the sign-in form of the web client, or use it in a terminal:",
        "",
        "  export EVERTURN_TOKEN=KEY",
        f"  {build_commands(url, access.examples)[0]}",
    ]


def build_choices(reports: Reports) -> dict[str, str]:
    """Each choice with its reason; if services differ, all reported ones."""
    return {
        choice: "; ".join(found)
        for choice, why in CHOICES
        if (found := sorted({_render_choice(report, choice, why) for report in reports.values() if choice in report}))
    }


def _render_choice(report: Mapping[str, str], choice: str, why: str) -> str:
    reason = report.get(why, "")
    return f"{report[choice]} ({reason})" if reason else report[choice]


def build_commands(url: str, examples: Sequence[str]) -> list[str]:
    """The examples for a platform at this URL, which is included only if it isn't the client's default."""
    prefix = "" if url == "http://127.0.0.1:8080" else f"EVERTURN_URL={shlex.quote(url)} "
    return [f"{prefix}{example}" for example in examples]
