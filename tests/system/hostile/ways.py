"""Ways to use a cluster that all have the result 3."""

from collections.abc import Callable

import sapwood

from .programs import DATA, Total

PATIENCE = 30.0


def by_task(cluster: sapwood.Cluster) -> object:
    return cluster.submit(abs, -3).result(PATIENCE)


def by_map(cluster: sapwood.Cluster) -> object:
    return max(cluster.map(abs, [-3, 2], timeout=PATIENCE))


def by_run(cluster: sapwood.Cluster) -> object:
    return cluster.run(Total, data=DATA).result(PATIENCE)["total"] / 2


def by_stream(cluster: sapwood.Cluster) -> object:
    with cluster.stream("echo", reduce="max") as stream:
        return stream.exchange(3, PATIENCE).total


def by_query(cluster: sapwood.Cluster) -> object:
    return max(cluster.query(abs, -3, timeout=PATIENCE).answers.values())


def by_message(cluster: sapwood.Cluster) -> object:
    asked = cluster.submit_to(1, lambda: sapwood.here().receive(source=0, tag=5).value)
    cluster.send(1, 3, tag=5)
    return asked.result(PATIENCE)


def by_group(cluster: sapwood.Cluster) -> object:
    group = cluster.group()
    group.broadcast("three", 3, timeout=PATIENCE)
    return max(group.gather("three", timeout=PATIENCE))


WAYS = (by_task, by_map, by_run, by_stream, by_query, by_message, by_group)
Way = Callable[[sapwood.Cluster], object]
