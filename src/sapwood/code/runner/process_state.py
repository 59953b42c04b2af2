"""What a runner process remembers for as long as it lives.

The values that it keeps by name, and the version of each program that it has loaded. Unloading a
library does not undo all that it did: threads, handlers and unique symbols of an old version may
stay and meet the new one. So a process that has had one version of a program refuses any other,
and its agent runs the call in a new process (:class:`RunnerHost`).
"""

from __future__ import annotations

from typing import Any

from sapwood.code.image import OpenProgram, ProgramImage, open_image
from sapwood.code.program import Program
from sapwood.content.refs import ContentFolder
from sapwood.core.errors import ProcessSpentError

kept: dict[str, Any] = {}
"""Values that user code keeps by name; see :class:`sapwood.types.AgentGroup`."""

_versions: dict[tuple[str, str, str], str] = {}


def open_version(
    image: ProgramImage, content: ContentFolder, kind: type[Program] | None = None
) -> OpenProgram:
    """Open a program in this runner process, in the one version of it that the process may have.

    Args:
        image: The program.
        content: Where its libraries are if its client's files cannot be seen from here.
        kind: Its class, where this process has it already.

    Raises:
        ProcessSpentError: The process has had other libraries of the same program.
        ProgramError: The Python part fails to import, or a library is missing or damaged.
    """
    origin = image.python.origin
    found = {(origin, image.name, each.language): each.sha256 for each in image.libraries}
    for program, version in found.items():
        if _versions.get(program, version) != version:
            raise ProcessSpentError(f"this process has had another version of {image.name}")
    _versions.update(found)
    return open_image(image, content, kind)
