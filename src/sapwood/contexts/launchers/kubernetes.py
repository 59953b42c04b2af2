"""Nodes through Kubernetes: the pods of an Indexed Job.

All is done by ``kubectl``, which has the user's way into the cluster: its configuration, plug-ins
for credentials, or the account of the pod that this runs in. The pods do nothing on their own.
A process is started in a pod by ``kubectl exec``, which carries its standard streams,
so no secret of Sapwood is kept in the cluster. The Job is deleted when this process ends, by
another one that waits for that.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sapwood.contexts.launchers.allocation import (
    TRANSITIONS,
    AllocationEvent,
    AllocationState,
    WaitCallback,
)
from sapwood.contexts.process import describe_status
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.shown import shown
from sapwood.environment.logs import logger

CONCURRENCY: Final = 16
"""Commands that start at once: each is a process here, and a connection of the API server."""

TIMEOUT: Final = 300.0
"""Seconds until pods that do not run are given up."""

ANSWER_TIMEOUT: Final = 30
"""Seconds in which the API server must answer."""

RELEASE_TIMEOUT: Final = 40.0
"""Seconds that deleting the Job may take."""

FIRST_LOOK, LONGEST_LOOK = 0.5, 5.0
"""Seconds between two looks at pods that are waited for; they grow from first to second."""

MAX_SAID: Final = 1000
"""Characters of what ``kubectl`` says that are shown."""

CONTAINER: Final = "node"
"""Name of the container of a pod."""

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod of an Indexed Job: which one it is."""

IMAGE: Final = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}"
"""Has the same version of Python as this process, a compiler and a shell."""

HOPELESS: Final = frozenset(
    {
        *("InvalidImageName", "ImagePullBackOff", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "CrashLoopBackOff"),
    }
)
"""Reasons of waiting containers that will not start without a change."""

_IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait \"$!\"; done"
_REAPER = 'cat >/dev/null; exec "$@"'
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods are.

    Attributes:
        image: Their image; it needs a shell, and Python 3.11 or newer.
        namespace: Where; empty for the namespace of the user's configuration.
        context: Of the user's configuration; empty for the current one.
        cpus: CPUs of each; 0 to ask for none.
        memory: Memory of each, as Kubernetes writes it, for example ``4Gi``; empty to ask for none.
        gpus: GPUs of each, by NVIDIA's device plug-in.
        deadline: Seconds after which Kubernetes ends the pods; 0 for never.
    """

    image: str = IMAGE
    namespace: str = ""
    context: str = ""
    cpus: int = 0
    memory: str = ""
    gpus: int = 0
    deadline: int = 0

    def checked(self) -> PodOptions:
        """Return these options if Kubernetes can have such pods.

        Raises:
            ConfigurationError: A value is out of range.
        """
        for name in ("cpus", "gpus", "deadline"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigurationError(
                    f"{name} cannot be {shown(value)}", hint="give a whole number"
                )
        if not self.image or self.image.startswith("-"):
            raise ConfigurationError(f"the image cannot be {shown(self.image)}")
        if self.memory and not _QUANTITY.fullmatch(self.memory):
            raise ConfigurationError(
                f"the memory cannot be {shown(self.memory)}", hint="write it as 4Gi or 500Mi"
            )
        return self


def job_of(name: str, pods: int, options: PodOptions) -> dict[str, Any]:
    """Return the Job whose pods are the nodes, as ``batch/v1`` has it.

    Args:
        name: Its name.
        pods: How many.
        options: What they are.
    """
    labels = {"app.kubernetes.io/name": "sapwood", "app.kubernetes.io/instance": name}
    amounts: dict[str, str] = {}
    if options.cpus:
        amounts["cpu"] = str(options.cpus)
    if options.memory:
        amounts["memory"] = options.memory
    limits = {"nvidia.com/gpu": str(options.gpus)} if options.gpus else {}
    if options.memory:
        limits["memory"] = options.memory
    container = {
        "name": CONTAINER,
        "image": options.image,
        "command": ["/bin/sh", "-c", _IDLE],
        "resources": {"requests": amounts, "limits": limits},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    spec: dict[str, Any] = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "ttlSecondsAfterFinished": 60,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 10,
                "topologySpreadConstraints": [spread],
                "containers": [container],
            },
        },
    }
    if options.deadline:
        spec["activeDeadlineSeconds"] = options.deadline
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


class PodView(msgspec.Struct, frozen=True):
    """A pod, as the API server shows it.

    Attributes:
        name: Its name.
        index: Which one of the Job it is; -1 if it does not say.
        ready: Whether commands can be started in it.
        machine: The node of Kubernetes that it is on; empty while it is on none.
        waits_for: Why it does not run yet.
        hopeless: Whether it will not run without a change.
    """

    name: str
    index: int
    ready: bool
    machine: str
    waits_for: str
    hopeless: bool

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> PodView:
        """Read a pod.

        Example:
            >>> PodView.of({"metadata": {"name": "a-0-x"}, "status": {"phase": "Pending",
            ...     "conditions": [{"type": "PodScheduled", "status": "False",
            ...         "reason": "Unschedulable", "message": "Insufficient cpu"}]}}).waits_for
            'Unschedulable: Insufficient cpu'
        """
        metadata, status = pod["metadata"], pod.get("status", {})
        found = metadata.get("annotations", {}).get(INDEX, "-1")
        phase = status.get("phase", "Pending")
        reasons = (
            [each for each in status.get("conditions", ()) if each.get("status") == "False"]
            if phase == "Pending"
            else []
        )
        waiting = [
            state
            for each in status.get("containerStatuses", ())
            if (state := each.get("state", {}).get("waiting"))
        ]
        ready = phase == "Running" and all(
            each.get("ready") for each in status.get("containerStatuses", ())
        )
        why = next((_reason(one) for one in [*waiting, *reasons] if one.get("reason")), phase)
        over = phase in {"Failed", "Succeeded"}
        return cls(
            name=metadata["name"],
            index=int(found),
            ready=ready and "deletionTimestamp" not in metadata,
            machine=pod.get("spec", {}).get("nodeName", ""),
            waits_for=_reason(status) if over and status.get("reason") else why,
            hopeless=over or any(one.get("reason") in HOPELESS for one in waiting),
        )


def _reason(told: Mapping[str, Any]) -> str:
    message = " ".join(str(told.get("message", "")).split())
    return f"{told['reason']}: {message}" if message else str(told["reason"])


class KubernetesLauncher:
    """Starts nodes on pods of a Kubernetes cluster.

    :meth:`request` asks for the pods, and :meth:`close` deletes them.

    Args:
        nodes: How many.
        options: What they are.
        timeout: Seconds until pods that do not run are given up.

    Raises:
        ConfigurationError: A value is out of range, or there is no ``kubectl``.
    """

    name = "kubernetes"

    def __init__(
        self, nodes: int, options: PodOptions | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        self.hosts: Sequence[str] = ()
        self.concurrency = CONCURRENCY
        self.job = f"sapwood-{secrets.token_hex(4)}"
        self._nodes = whole(nodes, "nodes", ConfigurationError)
        self._options = (options or PodOptions()).checked()
        self._timeout = timeout
        self._state = AllocationState.DELAYED
        self._pods: dict[str, str] = {}
        self._reaper: subprocess.Popen[bytes] | None = None
        program = shutil.which("kubectl")
        if program is None:
            raise ConfigurationError(
                "kubectl is not installed",
                where="PATH",
                hint="install it: it has your way into the cluster",
            )
        self._kubectl = [program]
        if self._options.context:
            self._kubectl.append(f"--context={self._options.context}")
        if self._options.namespace:
            self._kubectl.append(f"--namespace={self._options.namespace}")

    @property
    def state(self) -> AllocationState:
        """What the allocation is."""
        return self._state

    def request(self, on_wait: WaitCallback | None = None) -> None:
        """Get the pods, and wait for them; they are deleted if this fails.

        Args:
            on_wait: Told from time to time what is waited for.

        Raises:
            ConfigurationError: The cluster cannot have such pods.
            ResourceError: The cluster is not reached, or the pods do not run in time.
        """
        try:
            self._reap()
            manifest = json.dumps(job_of(self.job, self._nodes, self._options))
            self._ask("create", "--filename=-", "--validate=false", told=manifest)
            self._wait(on_wait)
        except BaseException:
            self.close()
            raise
        self._state = TRANSITIONS.after(self._state, AllocationEvent.GRANT)
        _log.info("pods granted", job=self.job, nodes=self.hosts)

    def _reap(self) -> None:
        """Have the Job deleted when this process ends, in whatever way."""
        delete = [
            *self._kubectl,
            *("delete", "job", self.job, "--ignore-not-found", "--cascade=foreground"),
            *("--wait=false", f"--request-timeout={ANSWER_TIMEOUT}s"),
        ]
        self._reaper = subprocess.Popen(
            ["/bin/sh", "-c", _REAPER, "sh", *delete],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is the client's business
        )

    def _ask(self, *words: str, told: str = "") -> str:
        try:
            done = subprocess.run(
                [*self._kubectl, *words, f"--request-timeout={ANSWER_TIMEOUT}s"],
                input=told,
                capture_output=True,
                text=True,
                timeout=ANSWER_TIMEOUT * 2,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ResourceError(
                "kubectl does not answer", where=words[0], hint="see what `kubectl version` says"
            ) from error
        if done.returncode == 0:
            return done.stdout
        said = " ".join(done.stderr.split())[-MAX_SAID:]
        refused = "(Forbidden)" in said or "(Invalid)" in said or "(BadRequest)" in said
        kind = ConfigurationError if refused else ResourceError
        raise kind(
            f"kubectl {words[0]} has failed",
            where=said or f"exit code {done.returncode}",
            hint="you need the rights to create, get and delete jobs, to list pods, and to create "
            "pods/exec"
            if refused
            else "see what `kubectl get pods` says",
        )

    def _wait(self, on_wait: WaitCallback | None) -> None:
        began, pause = time.monotonic(), FIRST_LOOK
        while True:
            asked = ("get", "pods", f"--selector=job-name={self.job}", "--output=json")
            pods = [PodView.of(pod) for pod in json.loads(self._ask(*asked))["items"]]
            ready = {pod.index: pod for pod in pods if pod.ready}
            if set(ready) == set(range(self._nodes)):
                self._pods = {f"{self.job}-{index}": ready[index].name for index in sorted(ready)}
                self.hosts = tuple(self._pods)
                return
            waits = sorted({pod.waits_for for pod in pods if not pod.ready})
            text = f"{len(ready)} of {self._nodes} pods run" + (
                f"; {', '.join(waits)[:MAX_SAID]}" if waits else ""
            )
            waited = time.monotonic() - began
            if on_wait is not None:
                on_wait(f"Kubernetes: {text}", waited)
            if any(pod.hopeless for pod in pods) or waited > self._timeout:
                late = f"within {self._timeout:g} s"
                lost = next((pod for pod in pods if pod.hopeless), None)
                raise ResourceError(
                    f"the pods of job {self.job} did not run {late}"
                    if lost is None
                    else f"pod {lost.name} does not run: {lost.waits_for}",
                    where=text,
                    hint="see image, amounts and quotas; nodes.kubernetes_timeout is how long to "
                    "wait",
                )
            time.sleep(pause)
            pause = min(LONGEST_LOOK, pause * 1.5)

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        if self._state is not AllocationState.GRANTED:
            raise ResourceError("the pods of this cluster are released, or not running yet")
        try:
            return subprocess.Popen(
                [
                    *self._kubectl,
                    *("exec", "--stdin", "--quiet", self._pods[host], f"--container={CONTAINER}"),
                    *("--", "/bin/sh", "-c", command),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"cannot start kubectl: {error.strerror}") from error

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a pod did not become a node."""
        del host
        last = said.strip().rpartition("\n")[2]
        return last or describe_status(status)

    def close(self) -> None:
        """Delete the Job with its pods, and wait until the API server has taken note."""
        reaper, self._reaper = self._reaper, None
        if reaper is None:
            return
        if self._state in {AllocationState.DELAYED, AllocationState.GRANTED}:
            self._state = TRANSITIONS.after(self._state, AllocationEvent.RELEASE)
        assert reaper.stdin is not None  # noqa: S101 - made with a pipe
        reaper.stdin.close()
        try:
            status = reaper.wait(RELEASE_TIMEOUT)
        except subprocess.TimeoutExpired:
            status = -1
            with contextlib.suppress(ProcessLookupError):
                reaper.kill()
            reaper.wait()
        if status != 0:
            _log.warning("the job was not deleted: delete it yourself", job=self.job)
        self._state = TRANSITIONS.after(self._state, AllocationEvent.GONE)


_log = logger("launchers")
