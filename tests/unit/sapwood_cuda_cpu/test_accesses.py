from __future__ import annotations

import pytest

from sapwood_cuda_cpu.accesses import Access, Accesses
from sapwood_cuda_cpu.calls import CallGraph
from sapwood_cuda_cpu.parse import CudaSource


def accesses(body: str) -> list[str]:
    """Return each access as text: ``W`` or ``R``, then the element; a barrier is a bar."""
    declared = "__shared__ int s[64], u[4][64]; int t = threadIdx.x;"
    text = f"__global__ void k(int n) {{ {declared} {body} }}"
    source = CudaSource("a.cu", text.encode())
    found = Accesses(source.functions[0]).in_order(CallGraph([source]))
    return [
        "|" if each is None else f"{'RW'[each.is_write]} {each.array}[{each.base}{each.offset}]"
        for each in found
    ]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("s[t] = s[t + 1];", ["R s[t+1]", "W s[t]"]),
        ("s[t] += 2;", ["R s[t]", "W s[t]"]),
        ("s[1 + t]++;", ["R s[t+1]", "W s[t+1]"]),
        ("s[t] = 1; __syncthreads(); n = s[t ^ n];", ["W s[t]", "|", "R s[t^n]"]),
        ("u[2][t] = 1;", ["W u[2][t]"]),
        ("u[t][t] = 1;", []),
        ("s[n] = 1; s[2 * t] = 1;", ["W s[2 * t]"]),
        ("int k = s[t]; s[k] = 1;", ["R s[t]", "W s[k]"]),
        ("for (;;) s[t] = 1;", ["W s[t]"] * 2),
        ("if (s[t - 1]) s[t] = 1; else n = s[t];", ["R s[t-1]", "W s[t]", "R s[t]"]),
    ],
)
def test_they_come_in_the_order_of_a_thread(body: str, wanted: list[str]) -> None:
    assert accesses(body) == wanted


def test_a_distance_is_known_between_numbers() -> None:
    def at(operator: str, offset: str) -> Access:
        return Access("s", "t", operator, offset, False, False, None, 0, ())

    assert at("+", "+3").distance(at("-", "-2")) == -5
    assert at("", "").distance(at("+", "+4u")) == 4
    assert at("+", "+n").distance(at("", "")) is None
    assert at("^", "^1").distance(at("", "")) is None
