"""A Ray cluster on this machine whose nodes are processes, small enough for two cores, and always shut down."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

STORE = 80 * 2**20  # bytes; Ray's least is 75 MB
PATIENCE = {"health_check_timeout_ms": 300_000}  # a node of a busy machine may answer late; one that is gone does not


@contextmanager
def a_cluster() -> Iterator[SmallCluster]:
    """Its head takes no workers."""
    cluster = SmallCluster()
    try:
        yield cluster
    finally:
        cluster.shutdown()


class SmallCluster:
    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves log files of its processes open
            from ray.cluster_utils import Cluster

            head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
            head |= {"_system_config": PATIENCE}
            self._cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add_node(self, **resources: int):
        return self._cluster.add_node(object_store_memory=STORE, **resources)

    def kill_node(self, node) -> None:
        """Kill a node's processes, as if its machine were gone."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Stop the head, as if its machine were gone for those who connect to it."""
        self._cluster.head_node.kill_gcs_server()

    def shutdown(self) -> None:
        self._cluster.shutdown()
