import random

import numpy as np

from sapwood_lizard.seed import seeded


def test_random_numbers_begin_anew_and_go_on_as_before() -> None:
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002 - what programs use
    expected = [random.random(), np.random.random()]  # noqa: NPY002, S311 - as above
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002 - as above
    drawn = []
    for _ in range(2):
        with seeded(4):
            drawn.append((random.random(), np.random.random()))  # noqa: NPY002, S311 - as above
    assert drawn[0] == drawn[1]
    assert [random.random(), np.random.random()] == expected  # noqa: NPY002, S311 - as above
