"""A platform with a fault proxy on every link: each service to Postgres and to Redis, and clients to each ingress."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from everturn_local.supervision.service import ServiceSpec
from everturn_local.supervision.specs import Layout, Surroundings, build_specs
from faults.proxy import FaultProxy

SERVERS = {"postgres": "DATABASE_URL", "redis": "REDIS_URL"}
"""The variable with a service's address of the server."""


@dataclass(frozen=True, slots=True)
class Links:
    """The proxies. `between` those of services, by `(service, server)`; `front` those before the ingresses, by name."""

    between: dict[tuple[str, str], FaultProxy]
    front: dict[str, FaultProxy]

    @property
    def urls(self) -> list[str]:
        """Where clients reach the ingresses."""
        return [f"http://127.0.0.1:{proxy.port}" for proxy in self.front.values()]

    def of(self, server: str) -> Sequence[FaultProxy]:
        """All links to one server."""
        return [proxy for (_, name), proxy in self.between.items() if name == server]

    def heal(self) -> None:
        """Everything is forwarded again; a connection that was silent is cut."""
        for proxy in (*self.between.values(), *self.front.values()):
            proxy.heal(cut=True)

    def build_specs(self, around: Surroundings, layout: Layout) -> list[ServiceSpec]:
        """What `Platform` starts, with every address behind its proxy."""
        for proxy, port in zip(self.front.values(), layout.ports, strict=True):
            proxy.target = layout.host, port
        return [self._redirect(spec) for spec in build_specs(around, layout)]

    def _redirect(self, spec: ServiceSpec) -> ServiceSpec:
        env = dict(spec.env)
        for server, variable in SERVERS.items():
            url = urlsplit(env[variable])
            assert url.hostname is not None
            assert url.port is not None
            proxy = self.between[spec.name, server]
            proxy.target = url.hostname, url.port
            place = url.netloc.rpartition(":")[0]
            env[variable] = url._replace(netloc=f"{place}:{proxy.port}").geturl()
        return replace(spec, env=env)


@asynccontextmanager
async def open_links(ingresses: int, workers: int) -> AsyncGenerator[Links]:
    """Proxies that listen; they know their targets once a platform is started with `build_specs`."""
    fronts = [f"ingress-{number}" for number in range(1, ingresses + 1)]
    services = [*fronts, *(f"worker-{number}" for number in range(1, workers + 1))]
    links = Links(
        {(service, server): FaultProxy() for service in services for server in SERVERS},
        {name: FaultProxy() for name in fronts},
    )
    async with AsyncExitStack() as stack:
        for proxy in (*links.between.values(), *links.front.values()):
            await proxy.start()
            stack.push_async_callback(proxy.stop)
        yield links
