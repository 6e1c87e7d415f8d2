"""The broker's page of numbers."""

from prometheus_client import CollectorRegistry, generate_latest

from exec_supervisor.broker.metrics import BrokerMetrics


def test_the_page_counts_pairs_by_state_at_the_moment_it_is_read():
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry)
    warm = [1]
    metrics.count_pairs_by(lambda state: warm[0] if state == "warm" else 0)

    warm[0] = 3
    page = generate_latest(registry).decode()

    assert 'everturn_broker_pairs{state="warm"} 3.0' in page
    assert 'everturn_broker_pairs{state="attached"} 0.0' in page


def test_two_brokers_in_one_process_do_not_share_numbers():
    first, second = CollectorRegistry(), CollectorRegistry()

    BrokerMetrics(first).starts.labels("cold").inc()
    BrokerMetrics(second)

    assert 'everturn_broker_starts_total{kind="cold"} 1.0' in generate_latest(first).decode()
    assert 'kind="cold"' not in generate_latest(second).decode()
