"""The battery in Pods of a stand-in of a cluster."""

import tempfile
from pathlib import Path

from helpers.broker import OwnBroker
from kubernetes_cluster.cluster import Cluster

from chat_proc.sandbox.containers import open_container_sandbox, parse_address
from chat_proc.selftest.run import run_battery

NOT_HERE = {
    # The stand-in's Pods share the network of this machine, and so the names of its abstract sockets.
    "connect to an abstract socket of the host",
    "connect to an abstract socket of another run",
    "find data of another run",
    # Its containers have no control group.
    "allocate memory in child processes",
    "allocate shared memory",
    # Kubernetes does not limit the files of a volume.
    "create too many files",
}


async def test_it_holds_in_pods_but_for_what_a_cluster_and_its_stand_in_do_not_limit(tmp_path: Path):
    with (
        Cluster(tmp_path) as cluster,
        tempfile.TemporaryDirectory() as folder,
        OwnBroker(Path(folder), **cluster.settings, KUBERNETES_SECCOMP="everturn/executor.json") as broker,
    ):
        report = await run_battery(await open_container_sandbox(parse_address(broker.url)))

    # On a busy machine, programs with several attempts may not have ended in time.
    missed = {finding.attempt: finding.detail for finding in report.missed() if "no answer" not in finding.detail}
    assert missed.keys() <= NOT_HERE, missed
    assert report.held > 150
    assert not cluster.pods
