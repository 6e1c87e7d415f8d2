"""Metrics of the ingress, in a registry of its own; `everturn.core.metrics` has those that services share."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class IngressMetrics:
    """Counters of one process; labels are bounded sets, never ids."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ingress_requests_total",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "ingress_request_seconds",
            "Time until the response began.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.unhandled = Counter("ingress_unhandled_errors_total", "Unexpected errors.", registry=self.registry)
        self.refusals = Counter(
            "ingress_refusals_total",
            "Requests rejected before they were processed, by reason and role.",
            ["reason", "role"],
            registry=self.registry,
        )
        self.local_draws = Counter(
            "ingress_local_draws_total",
            "Calls whose rate limit this process checked alone, because Redis did not respond.",
            registry=self.registry,
        )
        self.refused_files = Counter(
            "ingress_refused_files_total", "Files rejected, by reason.", ["reason"], registry=self.registry
        )
        self.frame_refusals = Counter(
            "ingress_frame_refusals_total",
            "Widgets and embedded chats that were refused, by kind and reason.",
            ["kind", "reason"],
            registry=self.registry,
        )
        self.unread_files = Counter(
            "ingress_unread_files_total",
            "Files that could not be read, by reason: altered, or the store failed.",
            ["reason"],
            registry=self.registry,
        )
        self.notifications_failed = Counter(
            "ingress_notifications_failed_total",
            "Accepted work whose doorbell or hint could not be sent.",
            registry=self.registry,
        )
        self.part_ready = Gauge(
            "ingress_part_ready",
            "1 if a part that this ingress needs responds, otherwise 0, by part; checked at each scrape.",
            ["part"],
            registry=self.registry,
        )
        self._add_streams()
        self._add_queue()
        self._add_clients()
        self._add_sockets()

    def _add_streams(self) -> None:
        self.streams = Gauge("ingress_streams", "Open event streams.", registry=self.registry)
        self.stream_lag = Histogram(
            "ingress_stream_lag_seconds",
            "Time from the creation of an event in the worker to its delivery to a client's connection; depends "
            "on both "
            "clocks.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.snapshots = Counter(
            "ingress_stream_snapshots_total", "Snapshots read for streams.", registry=self.registry
        )
        self.redis_losses = Counter(
            "ingress_redis_losses_total",
            "Times that the connection to Redis was lost, by kind: events or hints.",
            ["kind"],
            registry=self.registry,
        )

    def _add_queue(self) -> None:
        self.queued = Gauge(
            "everturn_queued_turns",
            "Waiting turns, by lane; the same at every ingress.",
            ["lane"],
            registry=self.registry,
        )
        self.oldest_queued = Gauge(
            "everturn_queued_turns_oldest_seconds",
            "How long the oldest waiting turn has been waiting, by lane; the same at every ingress.",
            ["lane"],
            registry=self.registry,
        )

    def _add_clients(self) -> None:
        self.stuck = Counter(
            "ingress_stuck_clients_total",
            "Connections closed because the client did not read its response.",
            registry=self.registry,
        )

    def _add_sockets(self) -> None:
        self.sockets = Gauge("ingress_sockets", "Open sockets.", registry=self.registry)
        self.socket_calls = Counter(
            "ingress_socket_calls_total", "Calls received over sockets, by kind.", ["kind"], registry=self.registry
        )
        self.socket_events = Counter("ingress_socket_events_total", "Events sent over sockets.", registry=self.registry)
        self.socket_refusals = Counter(
            "ingress_socket_refusals_total",
            "Handshakes, calls and sockets rejected, by reason.",
            ["reason"],
            registry=self.registry,
        )
