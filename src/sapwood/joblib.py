"""The joblib back-end "sapwood": ``joblib.Parallel``, and with it scikit-learn, on a cluster.

Importing this module registers it::

    import joblib
    import sapwood
    import sapwood.joblib

    with sapwood.local(agents=4), joblib.parallel_config("sapwood"):
        print(joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(10)))
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    ThreadingBackend,
    register_parallel_backend,
)

from sapwood.client.cluster import Cluster, open_clusters
from sapwood.client.shared_files import SHARED_SIZE, SharedBuffer, SharedBuffers
from sapwood.client.submitting import TaskOptions
from sapwood.client.user_code import name_of
from sapwood.code.pickling import pickle_of
from sapwood.code.runner.here import runner
from sapwood.code.shared_buffers import call_pickled, mapped_array, packed
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

__all__ = ["SapwoodBackend"]

NAME: Final = "sapwood"
"""What joblib knows the back-end by."""


class SapwoodBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc] # it has no types
    """Runs the batches of ``joblib.Parallel`` as tasks of a cluster.

    Large arrays, also within data frames and other objects, are sent to each machine once and are
    read-only in the calls, as with joblib's own processes. Calls of ``joblib.Parallel`` within
    calls use threads of the agent's runner, also where they name this back-end.

    Args:
        cluster: The cluster, also with :meth:`options <sapwood.Cluster.options>`; by default the
            only one that is open in this process.
        **options: Those of joblib's other back-ends.

    Raises:
        ConfigurationError: No cluster is open, or several are; or ``cluster`` is not a cluster.

    Example:
        ::

            with joblib.parallel_config("sapwood", cluster=cluster):
                GridSearchCV(SVC(), {"C": [1, 10]}).fit(x, y)
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, cluster: Cluster | TaskOptions | None = None, **options: Any) -> None:
        if not isinstance(cluster, Cluster | TaskOptions | None):
            raise ConfigurationError(
                f"cluster is {shown(cluster)}",
                where='the joblib back-end "sapwood"',
                hint="give what sapwood.local(…) or sapwood.connect().start(…) returns",
            )
        super().__init__(**options)
        self._is_nested = cluster is None and runner.control is not None
        self._given = cluster
        self._shared: SharedBuffers | None = None
        self._running: set[Future[Any]] = set()
        self._lock = threading.Lock()

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster."""
        given: Any = self._given
        while isinstance(given, TaskOptions):
            given = given._parent  # noqa: SLF001 - of one family
        return _only_cluster() if given is None else given

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at a time: all agents, or as many as are wanted."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        agents = len(self.cluster.agents)
        if n_jobs is None:
            return agents
        return max(agents + 1 + n_jobs, 1) if n_jobs < 0 else min(n_jobs, agents)

    def configure(self, n_jobs: int | None = 1, parallel: Any = None, **_options: Any) -> int:
        """Get ready for a call of ``joblib.Parallel``; one job at a time stays in this process."""
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._is_nested:
            raise FallbackToBackend(ThreadingBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        if self._shared is None or self._shared.closed:
            self._shared = SharedBuffers(self.cluster)
        # joblib itself would make the calls if there was one job: a single agent gets two.
        return self.effective_n_jobs(n_jobs) if len(self.cluster.agents) > 1 else 2

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None
    ) -> Future[Any]:
        """Have some agent make a batch of calls; its future is ``callback``'s argument."""
        shared = self._shared
        assert shared is not None  # noqa: S101 - configure() is called first
        taken: list[SharedBuffer] = []
        buffers: list[Any] = []

        def stays(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            known = shared.take(raw) if raw.nbytes >= SHARED_SIZE else None
            if known is None:
                buffers.append(np.frombuffer(raw, np.uint8))
            else:
                taken.append(known)
                buffers.append(packed(known.ref))
            return False

        try:
            data = pickle_of(func, stays, {np.memmap: self._reduce_memmap})
            content = [one.ref for one in taken if one.ref.sha256]
            name = _name_of(func)
            caller = self._given or self.cluster
            submit = caller._submit_holding  # noqa: SLF001 - of one family
            future = submit(call_pickled, (data, buffers), content, name)
        except BaseException:
            shared.release(taken)
            raise
        with self._lock:
            self._running.add(future)
        future.add_done_callback(partial(shared.release, taken))
        future.add_done_callback(self._over)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return what the calls of a batch returned, or raise what one has raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002 - as joblib calls it
        """Cancel the calls that are not over."""
        del ensure_ready
        with self._lock:
            running = list(self._running)
        for future in running:
            future.cancel()

    def terminate(self) -> None:
        """Forget what the calls have shared."""
        if self._shared is not None:
            self._shared.close()
        self.reset_batch_stats()

    def _reduce_memmap(self, array: Any) -> Any:
        """Have agents map the same file where they see it; elsewhere they get what it holds."""
        session = self.cluster._session  # noqa: SLF001 - of one family
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        file, mode = root.filename, root.mode
        mapped = root.base is not None and file is not None and mode != "c" and array.size
        if not mapped or not session.shares_machine() or not Path(file).exists():
            return np.asarray(array).__reduce_ex__(5)
        first, size = _extent(array)
        offset = root.offset + array.ctypes.data - first - root.ctypes.data
        how = "r" if mode == "r" or not array.flags.writeable else "r+"
        return mapped_array, (
            (os.fspath(Path(file).absolute()), how, offset, size, first),
            (array.shape, array.dtype, array.strides),
        )

    def _over(self, future: Future[Any]) -> None:
        with self._lock:
            self._running.discard(future)


def _extent(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return how many bytes there are before the first item of an array, and in all."""
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    before = -sum(one for one in reach if one < 0)
    return before, before + sum(one for one in reach if one > 0) + array.itemsize


def _name_of(batch: Any) -> str:
    """Return the name of the function that a batch calls."""
    items = getattr(batch, "items", None)
    return name_of(items[0][0] if items else batch)


def _only_cluster() -> Cluster:
    """Return the only open cluster of this process."""
    found = [cluster for cluster in open_clusters if not cluster.closed]
    if len(found) == 1:
        return found[0]
    what = "several clusters are" if found else "no cluster is"
    raise ConfigurationError(
        f"{what} open in this process",
        where='the joblib back-end "sapwood"',
        hint='name one: joblib.parallel_config("sapwood", cluster=cluster)'
        if found
        else "start one first, for example: with sapwood.local(agents=4) as cluster: …",
    )


register_parallel_backend(NAME, SapwoodBackend)
