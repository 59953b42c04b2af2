from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.code.program import Program, native, natives_of, parameter, parameters_of
from sapwood.core.errors import ParameterError, ProgramError


class Base(Program):
    reduce = {"total": "sum"}  # noqa: RUF012 - as users write it
    k: int = parameter(2, minimum=1)

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {"total": slice.data.sum() * self.k}


class Derived(Base):
    seed: int = parameter(0)
    helper = native("helper")


def test_parameters_are_inherited_and_read_as_attributes() -> None:
    program = Derived(seed=3)
    assert (program.k, program.seed) == (2, 3)
    assert list(parameters_of(Derived)) == ["k", "seed"]
    assert repr(program) == "Derived(k=2, seed=3)"


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ParameterError) as caught:
        Derived(sed=1)
    assert "seed" in caught.value.hint
    assert "sed" in caught.value.what


def test_a_misspelt_reduction_is_an_error_at_definition() -> None:
    with pytest.raises(ProgramError) as caught:
        type("Bad", (Program,), {"reduce": {"x": "summ"}})
    assert "did you mean sum" in caught.value.hint


@pytest.mark.parametrize("name", ["map", "hash", "parameters", "bundle", "_x"])
def test_a_parameter_cannot_take_a_name_that_means_something(name: str) -> None:
    with pytest.raises(ProgramError):
        type("Bad", (Program,), {name: parameter(1)})


def test_sources_must_be_a_list() -> None:
    with pytest.raises(ProgramError) as caught:
        type("Bad", (Program,), {"sources": "a.c"})
    assert '["a.c"]' in caught.value.hint


def test_native_functions_are_found_and_cannot_be_called_here() -> None:
    program = Derived()
    assert list(natives_of(Derived)) == ["helper"]
    with pytest.raises(ProgramError, match="not loaded"):
        program.helper  # noqa: B018 - reading it is the test


def test_map_function_is_the_native_name_or_none() -> None:
    assert Base().map_function is None
    assert type("N", (Program,), {"map": native("assign")})().map_function == "assign"


def test_defaults_make_one_iteration_whose_result_is_the_total() -> None:
    program = Base()
    state = program.update(program.init(None), {"total": 5})
    assert state == {"total": 5}
    assert program.done(state)
    assert program.result(state) == {"total": 5}
    assert program.metrics(state) == {}
    assert program.iterations() == 1
    assert program.default_data() is None


def test_output_writes_by_suffix(tmp_path: Path) -> None:
    Base().output({"a": np.arange(3)}, None, tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as saved:
        assert saved["a"].tolist() == [0, 1, 2]


def test_a_reference_names_program_and_function() -> None:
    program = Derived()
    reference = program["helper"]
    assert (reference.program, reference.function) == (program, "helper")
