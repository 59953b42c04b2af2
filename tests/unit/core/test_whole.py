from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sapwood.core.errors import ConfigurationError, InputError
from sapwood.core.whole import whole


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3)])
def test_whole_numbers_of_any_kind(value: Any) -> None:
    number = whole(value, "chunk")
    assert (number, type(number)) == (3, int)


@pytest.mark.parametrize("value", ["3", 3.0, None, True, [3], np.float64(3)])
def test_others_are_errors(value: Any) -> None:
    with pytest.raises(InputError, match="chunk is"):
        whole(value, "chunk")


def test_the_caller_names_the_error() -> None:
    with pytest.raises(ConfigurationError, match="agents is 'x'"):
        whole("x", "agents", ConfigurationError)
