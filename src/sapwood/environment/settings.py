"""Every setting with its default, unit and meaning: a tree of frozen structures.

A new setting is one line here; configuration files, variables, ``sapwood config show`` and
the page of the documentation follow from it. Annotations are types here and not text, which would
be compiled one by one whenever a cluster starts.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sapwood.core.errors import ConfigurationError
from sapwood.core.host_tree import parse_shape
from sapwood.environment.folders import cache_folder, expand_user

Level = Literal["debug", "info", "warning", "error", "critical", "off"]
"""From which severity on messages are shown; ``off`` shows none."""

LARGEST = 2**63 - 1
"""Greatest whole number that processes can tell each other."""

Bytes = Annotated[int, Meta(ge=0, le=LARGEST, extra={"unit": "bytes"})]
"""A size; files and variables may write ``"64 KiB"``."""

Seconds = Annotated[float, Meta(ge=0, extra={"unit": "seconds"})]
"""A duration; files and variables may write ``"500 ms"``."""

PathText = Annotated[str, Meta(extra={"unit": "path"})]
"""A path; in a configuration file it is relative to the folder of that file."""

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
"""A whole number from 0."""


def about(text: str) -> Any:
    """Return the description of a setting, for use inside ``Annotated``."""
    return Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all groups of settings."""


class PlaceSettings(Section, frozen=True):
    """What differs for some places of a tree."""

    interpreter: Annotated[
        list[str],
        about("Command that starts Python for them, for example for another architecture."),
    ] = []


class ClusterSettings(Section, frozen=True):
    """The tree of a cluster, and the machines that it is on."""

    on: Annotated[
        str,
        about(
            "The machines: local, ssh:HOST,HOST (also gpu[1-4] and @FILE), slurm:N or slurm (the "
            "allocation that this is in), ray:N, dask:ADDRESS, kubernetes:N, or nodes:N for "
            "several nodes on this machine."
        ),
    ] = "local"
    agents: Annotated[
        Count,
        about(
            "Number of agents; 0 means one for each GPU where there are several, else as many "
            "as this process may use cores."
        ),
    ] = 0
    fanout: Annotated[
        Count, about("Children of each junction; 0 means all agents directly below the root.")
    ] = 0
    shape: Annotated[
        str,
        about(
            "Shape of the tree on one machine, instead of fanout: flat, kary:K, knomial:K or "
            "file:PATH; empty means by fanout."
        ),
    ] = ""
    spares: Annotated[
        bool,
        about("Whether spare junctions stand in for lost ones until these are replaced."),
    ] = False
    lost_nodes: Annotated[
        Literal["move", "leave", "fail"],
        about(
            "What becomes of agents whose node is gone: they begin on the other nodes (move), the "
            "cluster continues without them (leave), or it fails."
        ),
    ] = "move"
    node_patience: Annotated[
        Seconds,
        about("How long agents wait for a node that is gone and may come back; 0 means for ever."),
    ] = 10.0
    ready_timeout: Annotated[Seconds, about("How long the agents may take to become ready.")] = 30.0
    join_timeout: Annotated[
        Seconds,
        about(
            "How long a new process may take to join the tree before it is replaced; 0 means "
            "for ever."
        ),
    ] = 30.0
    interpreter: Annotated[
        list[str],
        about("Command that starts Python for the agents, as a list; empty means this Python."),
    ] = []
    content_cache: Annotated[
        Bytes,
        about(
            "Size of the folder in which a node keeps programs and data that came from another "
            "machine; the least recently used is removed first; 0 means no limit."
        ),
    ] = 10 * 2**30
    content_folder: Annotated[
        PathText,
        about(
            "That folder on each node, best on a separate disk; empty means "
            "$XDG_CACHE_HOME/sapwood/content there."
        ),
    ] = ""
    places: Annotated[
        dict[str, PlaceSettings],
        about(
            "What differs for some places, in tables named by their ranks, such as "
            '[cluster.places."3-4"], with the key interpreter.'
        ),
    ] = {}


class NodeSettings(Section, frozen=True):
    """How other machines become nodes of a cluster."""

    listen: Annotated[
        str, about("Where this machine listens for its nodes, host:port; port 0 is a free one.")
    ] = "0.0.0.0:0"
    topology: Annotated[
        str,
        about(
            "How machines are below each other: flat, kary:K (as many below each one), knomial:K, "
            "or file:PATH."
        ),
    ] = "kary:16"
    node_listen: Annotated[
        str,
        about(
            "Where a node listens that has others below it, host:port; port 0 is a free one. "
            "Other nodes never listen."
        ),
    ] = "0.0.0.0:0"
    ssh: Annotated[
        list[str], about('Arguments for ssh, such as ["-p", "2222"]; ~/.ssh/config counts anyway.')
    ] = []
    slurm: Annotated[
        list[str], about('Arguments for salloc, such as ["--partition=gpu", "--account=me"].')
    ] = []
    srun: Annotated[
        list[str], about("Arguments for srun, which starts each node, where a site needs some.")
    ] = []
    drain: Annotated[
        Seconds,
        about(
            "How long before the end of an allocation a run stops after the iteration in progress, "
            "and keeps its state: longer than an iteration; 0 means never."
        ),
    ] = 60.0
    ahead: Annotated[
        Seconds,
        about(
            "How long before that the next allocation is asked for, where a run may have several; "
            "the run moves there as soon as it is there."
        ),
    ] = 300.0
    allocations: Annotated[
        int,
        Meta(ge=1),
        about("How many allocations `sapwood run` may have, one after the other, for one run."),
    ] = 1
    allocation_time: Annotated[
        Seconds,
        about(
            "How long machines stay, unless the user says so or less is allowed; 0 means "
            "as Slurm says."
        ),
    ] = 0.0
    ray_timeout: Annotated[
        Seconds, about("How long machines that Ray does not have free may be waited for.")
    ] = 300.0
    dask_timeout: Annotated[
        Seconds, about("How long machines that Dask does not have may be waited for.")
    ] = 300.0
    kubernetes_timeout: Annotated[
        Seconds, about("How long pods of Kubernetes that do not run may be waited for.")
    ] = 300.0
    pod_image: Annotated[
        str,
        about(
            "Image of the pods of kubernetes:N, with a shell and Python 3.11 or newer; empty "
            "means python:3.N of Docker Hub."
        ),
    ] = ""
    pod_namespace: Annotated[
        str, about("Namespace of these pods; empty means that of kubectl's configuration.")
    ] = ""
    python: Annotated[
        list[str],
        about(
            "Command that starts Python on a node; empty means one of this minor version, or else "
            "the newest."
        ),
    ] = []
    packages: Annotated[
        list[PathText],
        about(
            "Folders with Sapwood's libraries for nodes of another architecture or version of "
            "Python, one for each, as `pip install --target` makes them; without one they are "
            "fetched from the package index."
        ),
    ] = []
    runtime: Annotated[
        Literal["auto", "send"],
        about("Whether Sapwood is sent to a node even where the node sees the same files: send."),
    ] = "auto"
    start_timeout: Annotated[
        Seconds, about("How long a machine may take to answer before it is given up and named.")
    ] = 15.0
    missing: Annotated[
        Literal["fail", "partial", "wait"],
        about(
            "What becomes of a cluster if some machines do not come: it fails and names them, it "
            "runs on the others (partial), or it tries again until ready (wait)."
        ),
    ] = "fail"
    loss_timeout: Annotated[
        float,
        Meta(ge=0.1, extra={"unit": "seconds"}),
        about("How long the link of a node may be gone before the node counts as lost."),
    ] = 10.0
    certificate_life: Annotated[
        float,
        Meta(ge=1, extra={"unit": "seconds"}),
        about("How long a node's certificate is valid; it is renewed after two thirds of that."),
    ] = 86400.0
    rejoin_timeout: Annotated[
        Seconds, about("How long a node that joined by hand looks for a head that is gone.")
    ] = 600.0
    stage_folder: Annotated[
        PathText,
        about(
            "Folder on each node for what `sapwood stage put` puts there; empty means "
            "$XDG_CACHE_HOME/sapwood/stage there; the head's setting counts."
        ),
    ] = ""
    stage_limit: Annotated[
        Bytes,
        about(
            "Size of that folder; the least recently used content without a name is removed "
            "first; 0 means no limit."
        ),
    ] = 20 * 2**30
    components: Annotated[
        list[str],
        about(
            "Components of other packages that the daemon of each node runs, by the names of their "
            "entry points; the head's setting counts."
        ),
    ] = []

    def __post_init__(self) -> None:
        """Refuse a shape that no tree can have."""
        parse_shape(self.topology)


class HeadSettings(Section, frozen=True):
    """The head of a cluster that stays."""

    store: Annotated[
        str,
        about(
            "Where it keeps what it must not forget: etcd://HOST:PORT,HOST:PORT/PREFIX, which "
            "several heads may share; empty means SQLite in a separate folder."
        ),
    ] = ""


class LimitSettings(Section, frozen=True):
    """What user code may take, and how large a cluster may be."""

    memory: Annotated[Bytes, about("Memory of each runner process; 0 means no limit.")] = 0
    time: Annotated[Seconds, about("Duration of each call of user code; 0 means no limit.")] = 0.0
    run_time: Annotated[Seconds, about("Duration of each whole run; 0 means no limit.")] = 0.0
    iterations: Annotated[
        Count,
        about(
            "Iterations after which a run ends though its program is not done; 0 means no limit."
        ),
    ] = 0
    checkpoints: Annotated[
        float,
        Meta(ge=0, le=1),
        about(
            "Share of the time of a run that its checkpoints may take, where it writes some: 1 "
            "writes one after each iteration, 0 none."
        ),
    ] = 0.02
    keep: Annotated[
        Bytes,
        about(
            "Freed memory that a runner keeps for its next arrays, where its memory has no "
            "limit; 0 gives all back at once."
        ),
    ] = 256 * 2**20
    output: Annotated[
        Bytes, about("Captured output of each call that is kept; the middle of more is cut out.")
    ] = 64 * 2**10
    idle: Annotated[
        Seconds, about("How long a runner process without work is kept; 0 means for ever.")
    ] = 60.0
    agents: Annotated[int, Meta(ge=1), about("Most agents that one cluster may have.")] = 1024
    bind: Annotated[
        bool,
        about(
            "Whether agents stay on one core each during a run, where they are as many as the "
            "cores of the machine or a multiple."
        ),
    ] = True
    spin: Annotated[
        Seconds,
        about(
            "Busy waiting in sapwood.local(): how long a process of a run looks for the next "
            "message before its core may sleep, where it is likely to come that soon; 0 means not "
            "at all."
        ),
    ] = 0.001
    check_memory: Annotated[
        bool,
        about(
            "Whether native functions get copies of all their arrays between guard pages: finds "
            "reads past the end and writes to inputs as well; slower."
        ),
    ] = False


class RunSettings(Section, frozen=True):
    """How the items of a run are given to agents."""

    delegate: Annotated[
        Literal["measured", "static"],
        about(
            "In equal parts that stay (static), or by the measured rates of agents "
            "and change (measured): the last bits of sums may then differ from run to run."
        ),
    ] = "static"
    gain: Annotated[
        float,
        Meta(ge=0, le=1),
        about("Share of an iteration that moving items must save before they are moved."),
    ] = 0.08
    late_factor: Annotated[
        float,
        Meta(ge=1),
        about("How much longer than expected an agent may take before others do its items, too."),
    ] = 1.3
    late_after: Annotated[
        Seconds, about("How much longer it may take in any case, before they do.")
    ] = 0.1


class TaskSettings(Section, frozen=True):
    """What single calls may carry."""

    pickle: Annotated[
        bool,
        about(
            "Whether arguments, results and exceptions of tasks may be any objects, pickled; "
            "else plain values and arrays only, and this process opens no pickle of a runner."
        ),
    ] = True


class CacheSettings(Section, frozen=True):
    """Where built programs are kept."""

    folder: Annotated[
        PathText, about("Folder of the build cache; empty means $XDG_CACHE_HOME/sapwood.")
    ] = ""
    size: Annotated[
        Bytes, about("Size of the build cache; the least recently used builds are removed first.")
    ] = 2 * 2**30

    def path(self) -> Path:
        """Return the folder of the build cache, absolute; it may not exist yet."""
        if self.folder:
            return expand_user(self.folder).absolute()
        return cache_folder()


class LevelPair(Section, frozen=True):
    """Levels of one component, where they differ from the general ones."""

    console: Annotated[Level | None, about("Level on the console; absent: the general one.")] = None
    file: Annotated[Level | None, about("Level in the file; absent: the general one.")] = None


class LogSettings(Section, frozen=True):
    """Messages that are logged, and their destinations."""

    console: Annotated[Level, about("Level of messages on the console (standard error).")] = (
        "warning"
    )
    file: Annotated[
        PathText, about("File that messages are appended to as JSON lines; empty: none.")
    ] = ""
    file_level: Annotated[Level, about("Level of messages in the file.")] = "debug"
    components: Annotated[
        dict[str, LevelPair],
        about(
            "Levels of single components, in tables such as [log.components.comm] with the "
            "keys console and file."
        ),
    ] = {}


MIN_HEARTBEAT = 0.001
"""Seconds: with shorter ones a place does nothing but beat."""

MIN_MESSAGE = 64 * 2**10
"""Bytes that what places say to each other may have."""


class CommSettings(Section, frozen=True):
    """How the places of a tree talk to each other."""

    heartbeat: Annotated[Seconds, about("Time between signs of life on a silent link.")] = 2.0
    failure_after: Annotated[
        Seconds, about("Silence after which a neighbour counts as lost; more than the heartbeat.")
    ] = 30.0
    inline_limit: Annotated[
        Bytes, about("Payloads up to this size travel in the message, larger ones beside it.")
    ] = 64 * 2**10
    shared_memory: Annotated[
        bool,
        about(
            "Whether places of one machine map each other's memory; else large messages travel "
            "in pieces, and programs and data by their hash, as between machines."
        ),
    ] = True
    fastpath: Annotated[
        bool,
        about("Whether small waves and calls may pass by a small compiled library."),
    ] = True
    transport: Annotated[
        str,
        about(
            "What links the places of a cluster on this machine: the name of an installed "
            "transport, which then carries everything; empty means Unix sockets."
        ),
    ] = ""
    max_message: Annotated[Bytes, about("Largest message that is accepted.")] = 2**30
    max_payload: Annotated[
        Bytes,
        about(
            "Most that a client sends the root of a session at once, where both do not share "
            "memory: an array of a wave, a call, a message, a piece of data; the root has it in "
            "memory, so more goes in several."
        ),
    ] = 2**30
    window: Annotated[
        Bytes, about("What one neighbour may send before this side has dealt with it.")
    ] = 4 * 2**20
    grace: Annotated[
        Seconds,
        about("Time in which a broken connection between living processes is made again."),
    ] = 5.0
    backlog: Annotated[
        Bytes,
        about("What callers may have under way in one stream before they have to wait."),
    ] = 256 * 2**20

    def __post_init__(self) -> None:
        """Refuse what no tree can live with, and hold the two times against each other."""
        if self.heartbeat < MIN_HEARTBEAT:
            raise ConfigurationError(
                f"signs of life cannot come every {self.heartbeat:g} s",
                where="comm.heartbeat",
                hint=f"give at least {MIN_HEARTBEAT:g} s",
            )
        if self.max_message < MIN_MESSAGE:
            raise ConfigurationError(
                f"{self.max_message} bytes are too few for the messages of the tree",
                where="comm.max_message",
                hint=f"give at least {MIN_MESSAGE} bytes",
            )
        if self.failure_after <= self.heartbeat:
            raise ConfigurationError(
                f"a neighbour cannot count as lost after {self.failure_after} s of silence "
                f"when signs of life come every {self.heartbeat} s",
                where="comm.failure_after",
                hint="make comm.failure_after several times comm.heartbeat",
            )


class RestartSettings(Section, frozen=True):
    """When a dead component or process is started again."""

    limit: Annotated[
        Count, about("Restarts within the window after which a component stays dead.")
    ] = 5
    window: Annotated[Seconds, about("The window in which restarts are counted.")] = 60.0
    backoff: Annotated[Seconds, about("Wait before the first restart; doubles each time.")] = 0.01
    backoff_max: Annotated[Seconds, about("Longest wait before a restart.")] = 10.0

    def __post_init__(self) -> None:
        """Hold the two waits against each other."""
        if self.backoff_max < self.backoff:
            raise ConfigurationError(
                f"the longest wait before a restart ({self.backoff_max} s) is shorter than the "
                f"first ({self.backoff} s)",
                where="restart.backoff_max",
                hint="make restart.backoff_max at least restart.backoff",
            )


class EnvironmentSettings(Section, frozen=True):
    """The environment variables of builds and runners."""

    source: Annotated[
        list[PathText],
        about("Shell files that /bin/sh sources at start; their exports reach builds and runners."),
    ] = []
    source_timeout: Annotated[Seconds, about("How long sourcing these files may take.")] = 30.0
    variables: Annotated[
        dict[str, str],
        about(
            "Environment variables for agents, in addition to their own; environment= and "
            "`sapwood run PROGRAM --env NAME` add to them."
        ),
    ] = {}
    packages: Annotated[
        str,
        about(
            "Environment whose packages commands and runners on the nodes of a head have, by the "
            "name that `sapwood stage environment` gave it; empty: none."
        ),
    ] = ""


class RecoveryPolicy(Section, frozen=True):
    """What a head does about what is gone."""

    lost_nodes: Annotated[
        Literal["keep", "remove"],
        about(
            "Whether a node that is lost stays in the list until it comes back (keep; at most "
            "1,000 do), or is removed after recovery.patience and needs a new token (remove)."
        ),
    ] = "keep"
    patience: Annotated[Seconds, about("How long a lost node may be away before that.")] = 600.0


class RestartPolicy(Section, frozen=True):
    """How often the root of a session, and the process of a detached run, is started again."""

    limit: Annotated[Count, about("Restarts of one of these within the window.")] = 5
    window: Annotated[Seconds, about("The window in which these are counted.")] = 600.0
    root: Annotated[
        Literal["again", "end"],
        about("Whether the session restarts or ends when its server is lost."),
    ] = "again"
    run: Annotated[
        Literal["again", "end"],
        about("Whether the run restarts or fails when its process is lost."),
    ] = "again"


class IdlePolicy(Section, frozen=True):
    """The treatment of idle sessions."""

    session: Annotated[
        Seconds,
        about("How long a session is kept to which no client is attached; 0 means for ever."),
    ] = 3600.0


class DisconnectPolicy(Section, frozen=True):
    """What becomes of output and answers while no client is attached."""

    output: Annotated[
        Literal["buffer", "drop", "block"],
        about(
            "They wait in a buffer that drops the oldest and counts them (buffer), are dropped "
            "(drop), or hold up agents that push values (block)."
        ),
    ] = "buffer"
    buffer: Annotated[
        Bytes, about("Size of the buffer of each agent's output, and of each stream.")
    ] = 2**20


class RolePolicy(Section, frozen=True):
    """What a role allows."""

    rights: Annotated[
        list[str], about("Rights of credentials that are issued with --role ROLE.")
    ] = []


class LimitPolicy(Section, frozen=True):
    """What a head takes and keeps."""

    credential_life: Annotated[
        Seconds, about("How long a credential may be good at most; 0 means a year.")
    ] = 30 * 86400.0
    events: Annotated[
        int, Meta(ge=1), about("Events that the ledger keeps; of more, the newest.")
    ] = 1_000_000
    head_machine: Annotated[
        Literal["owner", "shared"],
        about(
            "Which credentials may run code as the head's user on its machine: with the right "
            "admin (owner), or all, each of which then gives all rights (shared)."
        ),
    ] = "owner"


class PolicySettings(Section, frozen=True):
    """The automatic actions of a head and its sessions; `sapwood policy set` changes them."""

    recovery: Annotated[RecoveryPolicy, about("What a head does about what is gone.")] = (
        RecoveryPolicy()
    )
    restarts: Annotated[
        RestartPolicy, about("How often a session's root and a run's process are started again.")
    ] = RestartPolicy()
    idle: Annotated[IdlePolicy, about("The treatment of idle sessions.")] = IdlePolicy()
    disconnect: Annotated[
        DisconnectPolicy, about("What becomes of output while no client is attached.")
    ] = DisconnectPolicy()
    limits: Annotated[LimitPolicy, about("What a head takes and keeps.")] = LimitPolicy()
    roles: Annotated[
        dict[str, RolePolicy],
        about(
            "What roles allow, in tables such as [policy.roles.analyst] with the key rights; "
            "owner, user, watcher and operator are there in any case."
        ),
    ] = {}


class Settings(Section, frozen=True):
    """All settings.

    Example:
        >>> Settings(cluster=ClusterSettings(agents=4)).cluster.agents
        4
    """

    cluster: Annotated[ClusterSettings, about("The tree of a cluster, and its machines.")] = (
        ClusterSettings()
    )
    nodes: Annotated[NodeSettings, about("How other machines become nodes.")] = NodeSettings()
    head: Annotated[HeadSettings, about("The head of a cluster that stays.")] = HeadSettings()
    limits: Annotated[LimitSettings, about("What user code may take.")] = LimitSettings()
    runs: Annotated[RunSettings, about("How the items of a run are given to agents.")] = (
        RunSettings()
    )
    tasks: Annotated[TaskSettings, about("What single calls may carry.")] = TaskSettings()
    cache: Annotated[CacheSettings, about("Where built programs are kept.")] = CacheSettings()
    log: Annotated[LogSettings, about("Messages that are logged, and their destinations.")] = (
        LogSettings()
    )
    comm: Annotated[CommSettings, about("How the places of the tree talk.")] = CommSettings()
    restart: Annotated[RestartSettings, about("When dead components are started again.")] = (
        RestartSettings()
    )
    environment: Annotated[
        EnvironmentSettings, about("Environment variables of builds and runners.")
    ] = EnvironmentSettings()
    policy: Annotated[
        PolicySettings, about("What a head does automatically; `sapwood policy set` changes it.")
    ] = PolicySettings()
