"""Files on the nodes of a cluster that stays: put there once, found by name, collected back."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from sapwood.environment.configuration import load_configuration
from sapwood.environment.schema import check_settings
from sapwood.environment.settings import Settings
from sapwood.head_client.stage_reports import (
    CollectInfo,
    EnvironmentInfo,
    StagedFilesInfo,
    StageInfo,
)

if TYPE_CHECKING:
    from sapwood.core.errors import SapwoodError

Names: TypeAlias = list[str]
"""The nodes where something was: in the class below, ``list`` is a method."""


class Stage:
    """The files that a cluster's nodes keep for you; a context manager.

    Processes on a node find what is staged there by its name in the folder that the variable
    ``SAPWOOD_STAGE`` names. Content travels once: what a node has already is not sent again, and
    nodes pass content on to each other.

    Args:
        name: What ``sapwood up --cluster`` was given, or ``sapwood://host:port`` for a head on
            another machine.
        settings: All settings; by default those of configuration files and variables.
        credential: A credential, or the file with one, for a head on another machine.
        key: The key of the credential's holder, or the file with it, if it is bound to one.

    Raises:
        NodeLostError: No such head is up here.
        CommunicationError: The head is not reached.
        SecurityError: The head is another one, or refuses the credential.

    Example:
        ::

            with sapwood.connect().stage() as stage:
                stage.put("build/solver", "meshes")
                sapwood.execute(["sh", "-c", "$SAPWOOD_STAGE/solver"], on="head")
                stage.get("~/result.csv", "results")
    """

    def __init__(
        self,
        name: str = "default",
        *,
        settings: Settings | None = None,
        credential: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - as in connect()
        from sapwood.head_client.staging import Staging  # noqa: PLC0415 - as above
        from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
            find_credential,
            find_holder_key,
        )

        chosen = load_configuration().settings if settings is None else check_settings(settings)
        self._head = HeadAccess(
            name,
            None if credential is None else find_credential(credential),
            None if key is None else find_holder_key(key),
            chosen.nodes.listen,
        )
        self._staging = Staging(self._head, chosen.nodes.node_listen)
        self._cache = chosen.cache

    def put(self, *paths: str | Path, nodes: str = "", name: str = "") -> list[StageInfo]:
        """Have files and folders on nodes; each is there when this returns.

        Args:
            *paths: What; a folder comes with all that is in it.
            nodes: Where, a set of names such as ``n[1-4]``; by default on all nodes.
            name: What it is called there, if it is only one; by default as here.

        Raises:
            InputError: A path cannot be staged, or there is no such node.
            SapwoodError: Some nodes do not have it; the error names them. The others do.
        """
        reports, failed = self._staging.put([Path(one) for one in paths], nodes, name)
        _raise(failed)
        return reports

    def environment(
        self, lock: str | Path, *, nodes: str = "", name: str = ""
    ) -> list[EnvironmentInfo]:
        """Have the packages of a lock file on nodes, where programs import them.

        They are installed here, once for each kind of nodes, by ``uv``. Commands use them by
        the setting ``environment.packages``, and so do runners.

        Args:
            lock: Requirements with hashes, ``pylock.toml`` or ``uv.lock``.
            nodes: Where, a set of names; by default on all nodes.
            name: What it is called there; by default as the lock's project or file.

        Raises:
            InputError: The lock cannot be installed, or the name belongs to other files.
            CommunicationError: uv reaches no index.
            ResourceError: The program uv is missing, or the disk is full.
            SapwoodError: Some nodes do not have it; the error names them. The others do.
        """
        from sapwood.code.cache import BuildCache  # noqa: PLC0415 - as above

        cache = BuildCache(self._cache.path(), size_limit=self._cache.size)
        reports, failed = self._staging.environment(Path(lock), cache, nodes, name)
        _raise(failed)
        return reports

    def get(self, remote: str, folder: str | Path, *, nodes: str = "") -> list[CollectInfo]:
        """Collect a file or a folder from nodes.

        A file that is equal on all nodes is written to ``folder/NAME``; otherwise each node's to
        ``folder/NODE/NAME``, where equal files share their place on the disk.

        Args:
            remote: A path on the nodes. It may begin with ``~`` or a variable, such as
                ``$SAPWOOD_STAGE``; one that is not absolute is in the home folder.
            folder: Where it comes to; it is made if it is not there.
            nodes: From where; by default from all nodes.

        Raises:
            SapwoodError: Some nodes do not have it; the error names them. What the others have
                was collected.
        """
        found, failed = self._staging.get(remote, Path(folder), nodes)
        _raise(failed)
        return found

    def list(self, *, nodes: str = "") -> list[StagedFilesInfo]:
        """Return what is staged, each thing once for all nodes that have the same.

        Raises:
            SapwoodError: Some nodes do not answer; the error names them.
        """
        from sapwood.head_client.staging import staged_files  # noqa: PLC0415 - as above

        facts, failed = self._staging.facts(nodes)
        _raise(failed)
        return staged_files(facts)

    def remove(self, name: str, *, nodes: str = "") -> Names:
        """Have nothing at a name any more; return the nodes where there was something.

        Raises:
            SapwoodError: Some nodes do not answer; the error names them.
        """
        removed, failed = self._staging.remove(name, nodes)
        _raise(failed)
        return removed

    def close(self) -> None:
        """Leave the head; staged files stay."""
        self._head.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()


def _raise(failed: dict[str, SapwoodError]) -> None:
    from sapwood.head_client.staging import folded  # noqa: PLC0415 - as above

    if failed:
        raise folded(failed)
