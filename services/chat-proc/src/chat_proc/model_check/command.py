"""The commands `models check` and `models list` of a worker: what an operator writes, and what is printed."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from chat_proc.channels.codec import choose_codec
from chat_proc.model_check.playing import Outcome, play_tasks
from chat_proc.model_check.report import (
    CheckReport,
    build_json,
    describe_context,
    explain_small_context,
    render_progress,
    render_report,
)
from chat_proc.models.endpoints import Endpoint
from chat_proc.models.providers import find_base_url
from chat_proc.models.roles import DECISION, HINTS, ROLES, Listed, ModelChoice, ModelRoles, narrow_traits
from chat_proc.settings import ModelSettings, OperatorConfig
from everturn.core.logging import Redactor
from everturn.models.port import CodecName, LanguageModel, ModelTraits

NOT_USABLE: Final = 1
MAX_PROBLEM_CHARS: Final = 250
"""How much operators are shown of why the list of a model's server can't be used."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse what follows `models`. Exits with 2 if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="everturn models", description="Check or list the models of this installation."
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    commands.add_parser(
        "list", help="list the model of each role, the codecs, the endpoints, and the limits and prices of the models"
    )
    check = commands.add_parser(
        "check",
        help="give a model twelve small tasks, most of them with each codec",
        description="Give a model twelve small tasks, most of them once with each codec, and recommend a codec. The "
        "provider charges for the calls. Exit status: 0 if a codec passes all required tasks, 1 if none does or the "
        "check ended early, 2 if an argument or a setting is invalid, 130 after Ctrl-C.",
    )
    check.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        default="",
        help="a model such as openai:<name>, as in EVERTURN_MODEL (default: the model of the role decision)",
    )
    check.add_argument("--json", action="store_true", dest="as_json", help="print the result as JSON")
    return parser.parse_args(arguments)


async def run_check(
    choice: ModelChoice, model: LanguageModel, settings: ModelSettings, config: OperatorConfig, *, as_json: bool
) -> int:
    """Check a model and return the exit status. If the check is interrupted, what was found so far is printed."""
    redactor = Redactor(settings.secrets)
    address = find_base_url(choice, settings.model_environment, config.models.endpoints) or model.traits.server_address
    configured = choose_codec(config.find_react(None).codec or settings.codec, model.traits)
    outcomes: list[Outcome] = []
    warning = explain_small_context(model.traits, settings.max_output_tokens)
    report = CheckReport(choice, model.traits, configured, outcomes, warning)
    try:
        async with aclosing(
            play_tasks(model, settings.max_output_tokens, address=address, on_start=_print_start)
        ) as played:
            async for outcome in played:
                # First of all: the end of a reason may be cut off, and a part of a key would not be found.
                reason = redactor.redact(outcome.judgement.reason)
                outcomes.append(replace(outcome, judgement=replace(outcome.judgement, reason=reason)))
                sys.stderr.write(f"{render_progress(outcomes[-1])}\n")
    except asyncio.CancelledError:
        sys.stderr.write("not finished\n")
        raise
    finally:
        if outcomes:
            _print([json.dumps(build_json(report), ensure_ascii=False)] if as_json else render_report(report))
    return 0 if report.is_usable else NOT_USABLE


def _print_start(codec: CodecName | None, number: int, name: str) -> None:
    """Begin the line of a task; it ends with the outcome."""
    sys.stderr.write(f"{codec or 'any codec'}, {number} {name}: ")
    sys.stderr.flush()


def print_models(roles: ModelRoles, settings: ModelSettings, config: OperatorConfig) -> None:
    """Print which model has which role, with which codec, the endpoints, and the facts about the models."""
    lines = [f"{role:<10} {_name_role(roles, role)}" for role in ROLES]
    lines.append(f"{'fallback':<10} {roles.fallback_choice.full_name if roles.fallback_choice else 'none'}")
    traits = narrow_traits(roles.model(DECISION), roles.fallback)
    lines += ["", f"codec: {choose_codec(config.find_react(None).codec or settings.codec, traits)}"]
    lines += [
        f"codec of the bundle {bundle}: {choose_codec(config.find_react(bundle).codec or settings.codec, traits)}"
        for bundle in config.bundles
    ]
    if warning := explain_small_context(traits, settings.max_output_tokens):
        lines.append(f"Warning: {warning}.")
    environment = settings.model_environment
    lines += [_describe_endpoint(name, each, environment) for name, each in config.models.endpoints.items()]
    redactor = Redactor(settings.secrets)
    for name, model in roles.used.items():
        # Not after it is cut: half of a key is not recognized.
        problem = redactor.redact(roles.listed.get(name, Listed()).problem)[:MAX_PROBLEM_CHARS]
        lines.append(_describe_model(name, model.traits, problem))
    _print(map(redactor.redact, lines))


def _name_role(roles: ModelRoles, role: str) -> str:
    if role in HINTS and role not in roles.hints:
        return "not set: plans do not use it"
    choice = roles.choice(role)
    return f"{choice.full_name} ({choice.why})"


def _describe_endpoint(name: str, endpoint: Endpoint, environment: Mapping[str, str]) -> str:
    key = "no key" if endpoint.key_env is None else endpoint.key_env
    missing = "" if endpoint.has_key(environment) else ", which is not set"
    return f"endpoint {name}: {endpoint.protocol} at {endpoint.base_url}, {key}{missing}"


def _describe_model(name: str, traits: ModelTraits, problem: str) -> str:
    seen = [name for name, has in (("images", traits.images), ("documents", traits.documents)) if has]
    able = ", ".join([*seen, *sorted(traits.abilities)]) or "no abilities in its card"
    limit = traits.max_output_tokens
    reply = "no known limit on replies" if limit is None else f"replies of at most {limit:,} tokens"
    price = "price unknown" if traits.price is None else f"{traits.price.input:g} and {traits.price.output:g} USD"
    per = "" if traits.price is None else " per million input and output tokens"
    context = describe_context(traits, advises=not problem)
    return f"model {name}: {context}, {reply}; {able}; {price}{per}{'; ' if problem else ''}{problem}"


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
