"""Programs: what runs over the agents, iteration after iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sapwood.code.bundle import Bundle
from sapwood.code.capture import capture
from sapwood.code.filter import Filter
from sapwood.code.native_marker import Native, native
from sapwood.code.parameter import Parameter, ParameterValue, parameter
from sapwood.code.reducers import Reducer, check_reducers
from sapwood.code.result_file import find_writer, write_result
from sapwood.core.errors import DataMissingError, ParameterError, ProgramError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest

__all__ = ["NativeFunctionRef", "Program", "data_of", "native", "parameter"]


class Program:
    """Base of all programs: subclass it, or write a folder with ``program.toml``.

    One iteration maps the state over every slice of the data, reduces each field of the
    results in the tree, and makes the next state of what arrives at the root. ``init``,
    ``update``, ``done``, ``metrics`` and ``result`` run in the caller's process; ``map`` runs
    on the agents. Only parameters and state travel: what a method keeps on ``self`` stays
    in its process.

    Attributes:
        name: Shown to people; the name of the class unless set.
        description: One sentence for people.
        sources: C and C++ files, relative to the folder of the file that defines the class.
        inputs: Fields of the dataset that ``map`` wants, in order.
        reduce: Each field of the map's result, and how it is reduced: by name, ``sum``, ``min``,
            ``max``, ``mean``, ``concat``, ``count`` and others (``sapwood.comm.reductions``);
            or by an associative function of two values, a :class:`sapwood.Filter`, or a native
            function ``native("combine")`` that adds one array to another.
        data_columns: Columns that are used of a table that :meth:`default_data` names; None: all.
        allow_nan: Whether the data may hold NaN and infinite values; a run refuses them otherwise.
        movable: Whether items may go to other agents between two iterations, and may be mapped by
            two agents at a time when one is late; None where ``map`` does not seem to keep
            anything.

    Raises:
        ParameterError: A parameter is unknown or its value does not fit.

    Example:
        >>> class Mean(Program):
        ...     reduce = {"total": "sum", "n": "sum"}
        ...     def map(self, slice, state):
        ...         return {"total": slice.data.sum(), "n": len(slice)}
        ...     def result(self, state):
        ...         return state["total"] / state["n"]
        >>> Mean()
        Mean()
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    sources: ClassVar[Sequence[str]] = ()
    inputs: ClassVar[Sequence[str]] = ("data",)
    reduce: ClassVar[Mapping[str, Reducer]] = {}
    allow_nan: ClassVar[bool] = False
    movable: ClassVar[bool | None] = None
    data_columns: ClassVar[Sequence[str] | None] = None

    class_bundle: ClassVar[Bundle | None] = None
    """The files that the class was read from; None for a class that Python itself imported."""

    loaded_functions: Callable[[str], Callable[..., Any]] | None = None
    """Finds a native function by name where the library is loaded; None elsewhere."""

    library_path: str = ""
    """File of the first library where it is loaded, for code that binds functions directly."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        check_definition(cls)

    def __init__(self, **parameters: Any) -> None:
        declared = parameters_of(type(self))
        for name in parameters:
            if name not in declared:
                raise ParameterError(
                    f"unknown parameter {name}",
                    where=self.name or type(self).__name__,
                    hint=suggest(name, declared),
                )
        self.parameters: dict[str, ParameterValue] = {
            name: spec.check(parameters[name]) if name in parameters else spec.default
            for name, spec in declared.items()
        }
        # Separate attributes, because a short map reads them from memory each time.
        vars(self).update(self.parameters)
        self._bundle: Bundle | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(getattr(type(self), name, None), Parameter):
            raise ParameterError(
                f"parameter {name} of a program cannot change",
                where=name,
                hint="make a new program with the new value",
            )
        super().__setattr__(name, value)

    def default_data(self) -> Any:
        """Return the data to run on when the caller gives none; None when there are none."""
        return None

    def init(self, data: Any) -> dict[str, Any]:
        """Return the first state: a dictionary of arrays, numbers and strings."""
        return {}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        """Return the partial result of one slice: the fields that ``reduce`` names.

        Args:
            slice: ``start``, ``stop``, ``len()``, and the slice's arrays by field name.
            state: What ``init`` or the last ``update`` returned; not to be changed.
        """
        raise ProgramError(
            "the program has no map", where=self.name, hint="define map, or map = native(…)"
        )

    def close(self) -> None:
        """Give back what ``map`` keeps from wave to wave; called in the runner after the last."""

    def own_filter(self) -> Filter | None:
        """Return what puts whole results of ``map`` together; None where ``reduce`` does.

        Its ``up`` is called at each inner place of the tree, and at the root, with the
        results from below in the order of the ranks; it runs in a separate process there.
        """
        return None

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return the next state, made of the reduced result of one iteration."""
        return total

    def done(self, state: dict[str, Any]) -> bool:
        """Say whether this state is the last; asked after every update."""
        return True

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        """Return figures to show as progress, for example ``{"inertia": 1.2e6}``."""
        return {}

    def iterations(self) -> int | None:
        """Return the number of iterations that are planned, or None when it is not known.

        It is asked after :meth:`init`. A program that does not define ``done`` makes one.
        """
        return 1 if type(self).done is Program.done else None

    def result(self, state: dict[str, Any]) -> Any:
        """Return what ``run.result()`` gives, made of the last state."""
        return state

    def output(self, result: Any, data: Any, path: Path) -> None:
        """Write the result to a file; ``.npz``, ``.npy`` or ``.json`` unless overridden."""
        write_result(result, path)

    def check_output(self, path: Path) -> None:
        """Refuse, before a run, a file that :meth:`output` could not write after it.

        A program that overrides ``output`` may override this, too; by default it writes anything.

        Raises:
            ProgramError: Files of this suffix cannot be written.
        """
        if type(self).output is Program.output:
            find_writer(path)

    def build_environment(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables that this program's sources are built with.

        Args:
            environment: Those that all programs are built with.
        """
        return environment

    @property
    def bundle(self) -> Bundle:
        """The files of the program as they were when they were first asked for."""
        if self._bundle is None:
            kind = type(self)
            own = vars(kind).get("class_bundle")
            self._bundle = capture(own, kind, Program)
        return self._bundle

    @property
    def hash(self) -> str:
        """SHA-256 of the names and contents of the program's files, in hexadecimal."""
        return self.bundle.hash

    @property
    def map_function(self) -> str | None:
        """Name of the native map function, or None when the map is Python."""
        attribute = _attribute(type(self), "map")
        return attribute.function if isinstance(attribute, Native) else None

    def function(self, name: str) -> NativeFunctionRef:
        """Return a reference to a native function, for ``cluster.submit``."""
        return NativeFunctionRef(self, name)

    def __getitem__(self, name: str) -> NativeFunctionRef:
        return self.function(name)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.name or type(self).__name__}({values})"


class NativeFunctionRef:
    """A function of a program, to hand to ``cluster.submit`` or ``cluster.map``.

    Attributes:
        program: The program whose sources define it.
        function: Its name.
    """

    __slots__ = ("function", "program")

    def __init__(self, program: Program, function: str) -> None:
        self.program = program
        self.function = function

    def __repr__(self) -> str:
        return f"<native function {self.function} of {self.program!r}>"


def parameters_of(kind: type[Program]) -> dict[str, Parameter]:
    """Return the parameters of a program class by name, inherited ones first."""
    found: dict[str, Parameter] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Parameter):
                found[name] = value
            elif name in found:
                del found[name]
    return found


def natives_of(kind: type[Program]) -> dict[str, Native]:
    """Return the native functions that a program class names, by attribute."""
    names = {name for base in kind.__mro__ for name in vars(base)}
    found = {name: _attribute(kind, name) for name in sorted(names)}
    found |= {f"reduce of {field}": how for field, how in kind.reduce.items()}
    return {name: value for name, value in found.items() if isinstance(value, Native)}


def check_definition(kind: type[Program]) -> None:
    """Check what a program class says of itself.

    Raises:
        ProgramError: A reduction is unknown, a parameter takes a name that has a meaning, or its
            default does not fit.
    """
    check_reducers(kind.reduce, where=kind.name)
    for key in ("sources", "inputs"):
        names = getattr(kind, key)
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ProgramError(
                f"{key} must be a list of names, not {shown(names)}",
                where=kind.name,
                hint=f'write {key} = ["{names}"]' if isinstance(names, str) else "",
            )
    for name, found in parameters_of(kind).items():
        found.check_definition(kind.name)
        if name.startswith("_") or hasattr(Program, name) or name in {"parameters", "bundle"}:
            raise ProgramError(
                f"a parameter cannot be called {name}",
                where=kind.name,
                hint="that name already means something in every program; choose another",
            )


def _attribute(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def data_of(program: Program, data: Any) -> Any:
    """Return the data of a run: the passed data, or the program's own.

    Raises:
        DataMissingError: There is neither.
    """
    if data is not None:
        return data
    default = getattr(program, "default_data", None)
    found = default() if default is not None else None
    if found is None:
        raise DataMissingError(f"program {program.name} has no default data", hint="pass data=…")
    return found
