"""The names of attributes that our spans may have, and the names of the published conventions."""

import importlib
import pkgutil
from types import ModuleType

import opentelemetry.semconv._incubating.attributes as development  # the conventions that are not stable yet
import opentelemetry.semconv.attributes as stable

CONVENTIONAL = frozenset(
    {
        "error.type",
        "gen_ai.agent.name",
        "gen_ai.conversation.id",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.max_tokens",
        "gen_ai.request.model",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.id",
        "gen_ai.response.model",
        "gen_ai.tool.call.id",
        "gen_ai.tool.name",
        "gen_ai.tool.type",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "server.address",
        "rpc.method",
        "rpc.response.status_code",
        "rpc.system.name",
        "url.path",
        "url.scheme",
    }
)
"""Of OpenTelemetry, in the version that SCHEMA_URL names."""
OWN = frozenset(
    {
        "everturn.compaction.after_tokens",
        "everturn.compaction.before_tokens",
        "everturn.compaction.reason",
        "everturn.model.role",
        "everturn.round",
        "everturn.run",
        "everturn.run.calls",
        "everturn.run.verdict",
        "everturn.sandbox.launcher",
        "everturn.tenant",
        "everturn.tool.status",
        "everturn.turn.attempt",
        "everturn.turn.id",
        "everturn.turn.outcome",
        "everturn.usage.cost_usd",
        "everturn.usage.estimated",
    }
)
RESOURCE = frozenset({"service.name", "service.instance.id", "service.version"})


def load_published() -> frozenset[str]:
    """All attribute names of the conventions, as the project that publishes them packages them."""
    return frozenset().union(*(_load_names(package) for package in (stable, development)))


def _load_names(package: ModuleType) -> set[str]:
    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    return {
        value for module in modules for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
    }
