"""How often the agents of a cluster were in which stack: the result of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.code.stacks import FrameInfo
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown

FOLDED: Final = (".folded", ".txt")
SPEEDSCOPE: Final = ".json"
PAGE: Final = ".html"


class StackCount(msgspec.Struct, frozen=True):
    """How often one stack was seen.

    Attributes:
        frames: Its frames, the outermost one first, without lines.
        samples: How often it was seen, on all agents together.
    """

    frames: tuple[FrameInfo, ...]
    samples: int


class ProfileResult(msgspec.Struct, frozen=True, kw_only=True):
    """How often the main threads of all runners were seen in which stack.

    Attributes:
        agents: Agents that took part.
        seconds: How long they were sampled.
        rate: Samples per second and agent that were asked for.
        idle: Samples in which a runner executed no user code.
        others: Samples of stacks that were too many to tell apart.
        stacks: The stacks, the most frequent one first.

    Example:
        >>> main, work = FrameInfo("main", "/a.py"), FrameInfo("work", "/a.py")
        >>> found = ProfileResult(
        ...     agents=2, seconds=1.0, rate=50.0, idle=10,
        ...     stacks=(StackCount((main, work), 60), StackCount((main,), 20)))
        >>> print(found.folded())
        main (a.py);work (a.py) 60
        main (a.py) 20
    """

    agents: int
    seconds: float
    rate: float
    idle: int = 0
    others: int = 0
    stacks: tuple[StackCount, ...] = ()

    @property
    def samples(self) -> int:
        """Samples of user code."""
        return self.others + sum(one.samples for one in self.stacks)

    def folded(self) -> str:
        """Return one line for each stack, as ``flamegraph.pl`` and speedscope read them."""
        lines = [f"{';'.join(map(_label, one.frames))} {one.samples}" for one in self.stacks]
        return "\n".join([*lines, f"(others) {self.others}"] if self.others else lines)

    def speedscope(self) -> dict[str, Any]:
        """Return the profile as a file of https://www.speedscope.app has it."""
        numbers: dict[FrameInfo, int] = {}
        samples = [
            [numbers.setdefault(frame, len(numbers)) for frame in one.frames] for one in self.stacks
        ]
        weights = [one.samples / self.rate for one in self.stacks]
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "sapwood",
            "name": f"{self.agents} agents",
            "shared": {"frames": [{"name": one.function, "file": one.file} for one in numbers]},
            "profiles": [
                {
                    "type": "sampled",
                    "name": f"user code of {self.agents} agents",
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": samples,
                    "weights": weights,
                }
            ],
        }


def _label(frame: FrameInfo) -> str:
    place = Path(frame.file).name
    label = f"{frame.function} ({place})" if place else frame.function
    return label.replace(";", ":").replace("\n", " ")


def check_profile_file(path: Path) -> Path:
    """Return the path of a profile, if its name says in which form it is to be written.

    Raises:
        ConfigurationError: It does not.
    """
    if path.suffix not in {*FOLDED, SPEEDSCOPE, PAGE}:
        raise ConfigurationError(
            f"{shown(str(path))} does not say in which form a profile is written",
            hint="name a file .html (flame graph), .json (speedscope) or .folded (flamegraph.pl)",
        )
    return path


def counts_of(stacks: Mapping[str, int], frames: str, file: str) -> list[StackCount]:
    r"""Return stacks from texts, the most frequent one first.

    Args:
        stacks: How often each was seen.
        frames: What separates the frames.
        file: What separates a function from its file.

    Example:
        >>> counts_of({"f\t/a.py\ng\t/b.so": 2}, "\n", "\t")[0].frames[1]
        FrameInfo(function='g', file='/b.so', line=0, native=True)
    """
    found = [
        StackCount(tuple(_frame(*one.partition(file)) for one in text.split(frames)), samples)
        for text, samples in stacks.items()
    ]
    return sorted(found, key=lambda one: -one.samples)


def _frame(function: str, _separator: str, file: str) -> FrameInfo:
    return FrameInfo(function, file, native=".so" in Path(file).name)
