"""A program of lizard-slayer as a program of Sapwood: what agents run, and what the root does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from sapwood import Filter, Program, parameter
from sapwood.plugins.programs import Bundle
from sapwood.plugins.tools import typed
from sapwood_lizard.abi import check_structures
from sapwood_lizard.ctypes_program import CtypesCombiner, CtypesCoordinator, CtypesWorker
from sapwood_lizard.extension_program import (
    ExtensionCombiner,
    ExtensionCoordinator,
    ExtensionWorker,
)
from sapwood_lizard.layout import EntryPoint
from sapwood_lizard.module import AbsentExtension, load_module
from sapwood_lizard.native import build_environment, native_bundle
from sapwood_lizard.native_library import ProgramLibrary
from sapwood_lizard.parts import Combiner, Coordinator, LizardWorker
from sapwood_lizard.registration import LizardDefinition, Registration, checksum_of, define
from sapwood_lizard.seed import seeded

STATE = "global_state"
AGGREGATE = "aggregate"


class LizardProgram(Program):
    """A registered program with its global parameters.

    It is not made by hand: :func:`sapwood_lizard.launch.start` does.
    """

    reduce: ClassVar[Mapping[str, str]] = {AGGREGATE: "gather"}
    inputs: ClassVar[tuple[str, ...]] = ("encoded",)

    registration: str = parameter("", help="the registered program, as JSON")
    global_params: str = parameter("", help="the encoded parameters, as JSON")
    entry_points: str = parameter("", help="what the library's functions take, as JSON")
    origin: str = parameter("", help="where the program came from, for messages")
    seed: int = parameter(0, help="seed of the random numbers of init_global_state")
    together: bool = parameter(default=False, help="whether only the root aggregates")

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        found = typed.json_reader(Registration)(self.registration)
        self.definition: LizardDefinition = define(found)
        self.name = self.definition.name  # type: ignore[misc]  # every program has its own
        self._coordinator: Coordinator | None = None
        self._worker: LizardWorker | None = None
        self._library: ProgramLibrary | None = None
        self._files: Bundle | None = None

    # --- at the root ---------------------------------------------------------------------------

    def init(self, data: Any) -> dict[str, Any]:
        """Return the first global state."""
        coordinator = self._coordinator = data.coordinator
        with seeded(self.seed):
            return {STATE: coordinator.first_state()}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return the next global state."""
        parts = total[AGGREGATE]
        if self.together:
            parts = [part for one in parts for part in one]
        return {STATE: self._at_root().next_state(parts)}

    def own_filter(self) -> Filter | None:
        """Return what calls the program's ``aggregate`` at places of the tree; None for none."""
        if self.together:
            return None  # the root gets all partial results
        return AggregateFilter(self.registration, self.global_params, self.origin)

    def done(self, state: dict[str, Any]) -> bool:
        """Ask the program whether this is the end."""
        return self._at_root().done()

    def result(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the last aggregate and global state, encoded as runner modules get them."""
        aggregate, last = self._at_root().end()
        return {"end_aggregate": aggregate, "end_global_state": last}

    def coordinator(self, module: ModuleType, params: Any, dataset: Any) -> Coordinator:
        """Return what works at the root of a run of this program."""
        if self.definition.extension:
            return ExtensionCoordinator(module, params, dataset)
        return CtypesCoordinator(module, params, dataset, together=self.together)

    def _at_root(self) -> Coordinator:
        assert self._coordinator is not None  # noqa: S101 - init comes first
        return self._coordinator

    # --- on the agents -------------------------------------------------------------------------

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        """Run one iteration over a slice."""
        if self._worker is None:
            self._worker = self._open(slice)
        return {AGGREGATE: [self._worker.iterate(state[STATE])]}

    def close(self) -> None:
        """Free what the program set up, and unload it."""
        worker, self._worker = self._worker, None
        library, self._library = self._library, None
        try:
            if worker is not None:
                worker.close()
        finally:
            if library is not None:
                library.close()

    def _open(self, part: Any) -> LizardWorker:
        from sapwood_lizard.dataset import points_of  # noqa: PLC0415 - only runners open

        self._library = library = ProgramLibrary(self.library_path)
        params = json.loads(self.global_params)
        if self.definition.extension:
            extension = library.extension()
            module = self.module(extension)
            return ExtensionWorker(module, extension, params, points_of(part))
        module = self.module(AbsentExtension())
        points = typed.json_reader(dict[str, EntryPoint])(self.entry_points)
        check_structures(points, module, where=self.definition.python.name)
        return CtypesWorker(module, library, params, points_of(part))

    # --- anywhere ------------------------------------------------------------------------------

    def module(self, extension: ModuleType) -> ModuleType:
        """Import the program's Python module."""
        return load_module(self.definition, origin=self.origin, extension=extension)

    def build_environment(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables that the sources are built with."""
        return build_environment(self.definition, environment)

    @property
    def bundle(self) -> Bundle:
        """The files that are built; the Python module is part of the parameters."""
        if self._files is None:
            pickled = pickle.dumps(LizardProgram)
            self._files = native_bundle(self.definition, origin=self.origin, pickled=pickled)
        return self._files

    @property
    def hash(self) -> str:
        """The checksum of the registration."""
        return checksum_of(typed.json_reader(Registration)(self.registration).data)

    def __repr__(self) -> str:
        return f"<LizardProgram {self.name} {self.hash[:12]}>"


class AggregateFilter(Filter):
    """Aggregates partial results with the program's own function.

    Args:
        registration: The registered program, as JSON.
        global_params: The encoded parameters, as JSON.
        origin: Where the program came from, for messages.
    """

    def __init__(self, registration: str, global_params: str, origin: str) -> None:
        self._made = (registration, global_params, origin)
        self._combiner: Combiner | None = None

    def up(self, values: list[Any]) -> Any:
        """Return what stands for the partial results that came from below."""
        if self._combiner is None:
            self._combiner = self._load()
        parts = [part for value in values for part in value[AGGREGATE]]
        return {AGGREGATE: self._combiner.combine(parts, last=self.depth == 0)}

    def _load(self) -> Combiner:
        registration, params, origin = self._made
        program = LizardProgram(registration=registration, global_params=params, origin=origin)
        module = program.module(AbsentExtension())
        if program.definition.extension:
            return ExtensionCombiner(module, json.loads(params))
        return CtypesCombiner(module, json.loads(params))
