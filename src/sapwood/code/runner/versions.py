"""One version of a program's libraries in each runner process.

Unloading a library does not undo all that it did: threads, handlers and unique symbols of an
old version may stay and meet the new one. So a process that has had one version of a program
refuses any other, and its agent runs the call in a new process (:class:`RunnerHost`).
"""

from sapwood.code.image import OpenProgram, ProgramImage, open_image
from sapwood.core.errors import ProcessSpentError

_had: dict[tuple[str, str, str], str] = {}  # of this process, for as long as it lives


def open_version(image: ProgramImage) -> OpenProgram:
    """Open a program in a runner process.

    Raises:
        ProcessSpentError: The process has had other libraries of the same program.
        ProgramError: The Python part fails to import, or a library is missing or damaged.
    """
    origin = image.python.origin
    found = {(origin, image.name, each.language): each.sha256 for each in image.libraries}
    for program, version in found.items():
        if _had.get(program, version) != version:
            raise ProcessSpentError(f"this process has had another version of {image.name}")
    _had.update(found)
    return open_image(image)
