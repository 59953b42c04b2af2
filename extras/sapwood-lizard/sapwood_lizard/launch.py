"""Registering and running programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sapwood import Cluster, Run
from sapwood.errors import FunctionMissingError, ProgramError
from sapwood.plugins.builds import Built, build
from sapwood.plugins.caches import BuildCache
from sapwood_lizard.abi import ENTRY_POINTS, check_entry_points, check_structures
from sapwood_lizard.contract import check_module
from sapwood_lizard.dataset import LizardDataset
from sapwood_lizard.extension_program import plain
from sapwood_lizard.layout import read_entry_points
from sapwood_lizard.module import AbsentExtension
from sapwood_lizard.parts import Coordinator
from sapwood_lizard.program import LizardProgram
from sapwood_lizard.registration import Registration
from sapwood_lizard.shared_state import shares_state

_INIT = "PyInit_user_program"


class Checked:
    """A program that is built and fits together.

    Attributes:
        registration: The registered program.
        built: Its library, kept in the cache while this object lives.
        program: The program, without parameters of a run.
        module: Its Python module, imported here.
    """

    def __init__(self, registration: Registration, built: Built, program: LizardProgram) -> None:
        self.registration = registration
        self.built = built
        self.program = program
        self.module = program.module(AbsentExtension())


def check(
    registration: Registration,
    *,
    origin: str = "",
    cache: BuildCache | None = None,
    environment: Mapping[str, str] | None = None,
) -> Checked:
    """Build a program and check that its parts fit together.

    Args:
        registration: The program.
        origin: Where it came from, for messages.
        cache: Where built things are kept.
        environment: Variables of the build.

    Raises:
        BuildError: A source does not compile.
        ProgramError: Something is missing, or Python and C do not agree.
    """
    encoded = msgspec.json.encode(registration.checked()).decode()
    program = LizardProgram(registration=encoded, origin=origin)
    definition = program.definition
    variables = dict(os.environ if environment is None else environment)
    where = definition.python.name
    found = Checked(registration, build(program, cache=cache, environment=variables), program)
    check_module(found.module, extension=definition.extension, where=where)
    library = found.built.libraries[0].image
    source = definition.place("cpp" if definition.extension else "cuda")
    if definition.extension:
        if not read_entry_points(Path(library.debug), {_INIT}):
            raise FunctionMissingError(
                f"no source defines {_INIT}",
                where=source,
                hint="the extension must be called user_program",
            )
        return found
    points = read_entry_points(Path(library.debug), set(ENTRY_POINTS))
    check_entry_points(points, where=source)
    check_structures(points, found.module, where=where)
    found.program = LizardProgram(
        **{**program.parameters, "entry_points": msgspec.json.encode(points).decode()}
    )
    return found


def start(
    cluster: Cluster,
    checked: Checked,
    params: Any,
    dataset: Any,
    *,
    seed: int = 0,
    coordinated: Callable[[LizardProgram], Coordinator] | None = None,
) -> Run:
    """Start a run of a checked program.

    Args:
        cluster: Where it runs.
        checked: The program.
        params: The global parameters, encoded; of a C extension plain values.
        dataset: The dataset, in the same form.
        seed: Of the random numbers of the first global state.
        coordinated: Returns what works at the root, where that is not the program itself.

    Returns:
        The run; its result has ``end_aggregate`` and ``end_global_state``, encoded.
    """
    together = shares_state(checked.program.definition, checked.module)
    more = {"global_params": _as_json(params), "seed": seed, "together": together}
    program = LizardProgram(**{**checked.program.parameters, **more})
    if coordinated is not None:
        coordinator = coordinated(program)
    else:
        coordinator = program.coordinator(checked.module, params, dataset)
    origin = f"the data of {program.name}"
    return cluster.run(program, LizardDataset(coordinator, origin=origin))


def _as_json(params: Any) -> str:
    try:
        return json.dumps(plain(params))
    except (TypeError, ValueError) as error:
        raise ProgramError(
            f"the global parameters cannot be written as JSON: {error}",
            where="init_global_params",
            hint="return numbers, texts, and lists and mappings of them",
        ) from error
