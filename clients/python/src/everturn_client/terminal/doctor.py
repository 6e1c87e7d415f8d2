"""`everturn doctor`: requests a server's state and prints how to fix its problems."""

from collections.abc import Sequence

from everturn_client.answers import parse_answer
from everturn_client.client import EverturnClient
from everturn_client.errors import BadAnswer, ProblemError, Unreachable
from everturn_client.readiness import Finding, ServerState, find_facts
from everturn_client.terminal.screen import Screen, Tone

NAME_CHARS = 12


async def run_doctor(client: EverturnClient, screen: Screen) -> int:
    """Print a line per fact; returns the number of problems. Raises Unreachable if nothing answers."""
    # Print the server's own report before the next request, which an unhealthy server may not answer.
    problems = print_findings(screen, await _check_server(client))
    return problems + print_findings(screen, [await _check_credential(client)])


def print_findings(screen: Screen, findings: Sequence[Finding]) -> int:
    """Print the findings; returns how many are problems."""
    for finding in findings:
        is_bad = bool(finding.remedy)
        screen.say(f"{'PROBLEM' if is_bad else 'ok':<8} {finding.name:<{NAME_CHARS}} {finding.fact}", _tone(is_bad))
        if is_bad:
            screen.say(f"{'':<8} {'':<{NAME_CHARS}} -> {finding.remedy}", "info")
    return sum(1 for finding in findings if finding.remedy)


async def _check_server(client: EverturnClient) -> list[Finding]:
    try:
        state = parse_answer(ServerState, await client.requests.load_any("/readyz"))
    except BadAnswer:
        remedy = "check the address; a proxy must forward /readyz to the ingress"
        return [Finding("server", f"{client.base_url} responds, but is not an Everturn ingress", remedy)]
    return [Finding("server", f"{client.base_url} answers with status {state.status}"), *find_facts(state)]


async def _check_credential(client: EverturnClient) -> Finding:
    try:
        await client.list_conversations(limit=1)
    except ProblemError as error:
        if error.problem.status in (401, 403):
            return Finding("credential", str(error), "pass a valid token with --token or EVERTURN_TOKEN")
        return Finding("credential", f"could not be checked: {error}", "see the problems above")
    except (BadAnswer, Unreachable) as error:
        return Finding("credential", f"could not be checked: {error}", "see the problems above and the ingress's log")
    return Finding("credential", "is accepted")


def _tone(is_bad: bool) -> Tone:
    return "bad" if is_bad else "good"
