"""Kernels in the style of public collections give what numpy gives, in every mode."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


@pytest.fixture
def collection(load_kernels: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The kernels, loaded."""
    return load_kernels("collection.cu")


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data)
        if isinstance(each, np.ndarray)
        else (ctypes.c_float(each) if isinstance(each, float) else ctypes.c_long(each))
        for each in arguments
    ]
    assert function(*given) == 0


def floats(random: np.random.Generator, *shape: int) -> Array:
    return random.uniform(0.5, 1.5, size=shape).astype(np.float32)


@pytest.mark.row("A-GPU-3")
def test_speckle_reducing_diffusion(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    image = floats(random, 37, 50)
    j = image.astype(np.float64)
    for _ in range(3):
        q0 = j.var() / j.mean() ** 2
        pad = np.pad(j, 1, "edge")
        n, s, w, e = (pad[:-2, 1:-1] - j, pad[2:, 1:-1] - j, pad[1:-1, :-2] - j, pad[1:-1, 2:] - j)
        g2, lap = (n**2 + s**2 + w**2 + e**2) / j**2, (n + s + w + e) / j
        q = (0.5 * g2 - lap**2 / 16) / (1 + 0.25 * lap) ** 2
        c = np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)
        south, east = np.vstack([c[1:], c[-1:]]), np.hstack([c[:, 1:], c[:, -1:]])
        j = j + 0.125 * (c * n + south * s + c * w + east * e)
    run(collection.srad_run, image, 37, 50, 3)
    np.testing.assert_allclose(image, j, rtol=2e-3)


def test_layer_of_a_net(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    x, w = floats(random, 64), floats(random, 64, 16)
    out = np.zeros((4, 16), np.float32)
    run(collection.layer_run, x, w, out, 64)
    np.testing.assert_allclose(out, (x[:, None] * w).reshape(4, 16, 16).sum(axis=1), rtol=1e-5)


def test_gaussian_elimination(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    a = floats(random, 43, 43) + 20 * np.eye(43, dtype=np.float32)
    b = floats(random, 43)
    wanted = np.linalg.solve(a.astype(np.float64), b)
    run(collection.gaussian_run, a, b, 43)
    np.testing.assert_allclose(np.linalg.solve(np.triu(a), b), wanted, rtol=1e-3, atol=1e-5)


def test_particle_filter(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    n = 1000
    x, chosen, cumulated = floats(random, n), np.zeros(n, np.float32), np.zeros(n, np.float32)
    seed = random.integers(1, 10**9, n).astype(np.int32)
    with np.errstate(over="ignore"):
        number = seed * np.int32(1103515245) + np.int32(12345)
    next_seed = np.fmod(number, np.int32(2147483647))
    moved = x + np.abs(next_seed.astype(np.float32) / np.float32(2147483647)) - np.float32(0.5)
    weights = np.exp(-0.5 * (moved.astype(np.float64) - 1.2) ** 2)
    run(collection.particle_run, x, chosen, cumulated, seed, 1.2, n)
    np.testing.assert_array_equal(seed, next_seed)
    np.testing.assert_allclose(x, moved, atol=1e-6)
    np.testing.assert_allclose(cumulated, (weights / weights.sum()).cumsum(), rtol=1e-3)
    places = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n)
    index = np.minimum(np.searchsorted(cumulated, places), n - 1)
    assert (chosen == x[index]).mean() > 0.99


def test_gain_of_a_centre(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    n, dims, centres = 500, 7, 9
    at, weight = floats(random, dims, n), floats(random, n)
    assign = random.integers(0, n, n).astype(np.int32)
    table = random.integers(0, centres, n).astype(np.int32)
    cost = (4 * floats(random, n)) ** 2 / 16
    work, switches = np.zeros((n, centres + 1), np.float32), np.zeros(n, np.uint8)
    new = ((at - at[:, 7:8]) ** 2).sum(axis=0) * weight
    wanted = np.zeros((n, centres + 1))
    wins = new < cost
    wanted[wins, centres] = (new - cost)[wins]
    wanted[~wins, table[assign][~wins]] = (cost - new)[~wins]
    run(collection.gain_run, at, weight, assign, cost, table, work, switches, n, dims, centres)
    np.testing.assert_array_equal(switches, wins)
    np.testing.assert_allclose(work, wanted, rtol=1e-3, atol=1e-5)


def test_particles_in_boxes(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    boxes, size = 6, 40
    r, q = random.uniform(size=(boxes * size, 4)), random.uniform(size=boxes * size)
    f = np.zeros_like(r)
    run(collection.boxes_run, r, q, f, boxes)
    wanted = np.zeros_like(r)
    for b in range(boxes):
        ours = r[b * size : (b + 1) * size, None]
        near = slice(max(b - 2, 0) * size, min(b + 3, boxes) * size)
        d2 = ours[..., 0] + r[near, 0] - (ours[..., 1:] * r[near, 1:]).sum(axis=2)
        e = q[near] * np.exp(-0.5 * d2)
        force = (2 * e[..., None] * (ours[..., 1:] - r[near, 1:])).sum(axis=1)
        wanted[b * size : (b + 1) * size] = np.column_stack([e.sum(axis=1), force])
    np.testing.assert_allclose(f, wanted, rtol=1e-9)


def test_fluxes_over_cells(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    n = 777
    neighbours = random.integers(-2, n, size=(4, n)).astype(np.int32)
    neighbours[0, ::3], neighbours[1, ::5] = -1, -2
    normals, variables, far = floats(random, 4, n), floats(random, 4, n), floats(random, 4)
    out = np.zeros(n, np.float32)
    speed = np.sqrt(((variables[1:] / variables[0]) ** 2).sum(axis=0))
    inner = 0.5 * (speed + speed[neighbours])
    flux = np.where(neighbours >= 0, inner, variables[2] / variables[0])
    flux = np.where(neighbours == -2, far[:, None], flux)
    run(collection.flux_run, neighbours, normals, variables, far, out, n)
    np.testing.assert_allclose(out, (normals * flux).sum(axis=0), rtol=1e-5)


def test_search_tree(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    order, last = 64, 2**30
    keys = np.unique(random.integers(0, 10**6, 3000))[: order * 40].astype(np.int32)
    leaves = [keys[i : i + order] for i in range(0, len(keys), order)]
    nodes = np.full((1 + len(leaves), 2, order + 1), last, np.int32)
    nodes[:, 1] = -1
    nodes[0, 0, : len(leaves)] = [leaf[0] for leaf in leaves]
    nodes[0, 1, : len(leaves)] = np.arange(1, 1 + len(leaves))
    for i, leaf in enumerate(leaves, 1):
        nodes[i, 0, : len(leaf)] = leaf
        nodes[i, 1, : len(leaf)] = leaf % 1000
    query = np.concatenate([random.choice(keys, 100), keys[:3] + 1]).astype(np.int32)
    answer = np.full(len(query), -5, np.int32)
    run(collection.find_run, nodes, len(nodes), 1, query, answer, len(query))
    wanted = np.where(np.isin(query, keys), query % 1000, -5)
    np.testing.assert_array_equal(answer, wanted)


@pytest.mark.parametrize("levels", [1, 3, 7])
def test_haar_wavelets(collection: ctypes.CDLL, random: np.random.Generator, levels: int) -> None:
    x = floats(random, 5, 128)
    out = np.zeros_like(x)
    run(collection.haar_run, x, out, x.size, levels)
    wanted, rest = np.zeros((5, 128)), x.astype(np.float64)
    for _ in range(levels):
        even, odd = rest[:, ::2], rest[:, 1::2]
        half = even.shape[1]
        wanted[:, half : 2 * half] = (even - odd) / np.sqrt(2)
        rest = (even + odd) / np.sqrt(2)
    wanted[:, : rest.shape[1]] = rest
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-6)


def test_compaction_by_votes(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    x = random.integers(0, 1000, 3001).astype(np.int32)
    out, count = np.zeros_like(x), np.zeros(1, np.int32)
    run(collection.compact_run, x, out, count, len(x))
    wanted = np.sort(x[x % 3 == 0])
    assert count[0] == len(wanted)
    np.testing.assert_array_equal(np.sort(out[: count[0]]), wanted)


def test_nearest_of_each(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    x, y = random.normal(size=301).astype(np.float32), random.normal(size=200).astype(np.float32)
    index = np.zeros((301, 5), np.int32)
    run(collection.nearest_run, x, y, index, 301, 200)
    wanted = np.argsort(np.abs(x[:, None] - y), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index, wanted)


def test_reductions_of_tiles(collection: ctypes.CDLL, random: np.random.Generator) -> None:
    x = random.integers(0, 9, 1024).astype(np.int32)
    x[:32] = 4
    total, most, same, every = (np.zeros_like(x) for _ in range(4))
    run(collection.tiles_run, x, total, most, same, every, len(x))
    warps = x.reshape(-1, 32)
    np.testing.assert_array_equal(
        total.reshape(-1, 32), warps.sum(axis=1, keepdims=True) + 0 * warps
    )
    np.testing.assert_array_equal(
        most.reshape(-1, 32), warps.max(axis=1, keepdims=True) + 0 * warps
    )
    bits = (warps[:, :, None] == warps[:, None, :]) @ (1 << np.arange(32, dtype=np.uint64))
    np.testing.assert_array_equal(same.view(np.uint32).reshape(-1, 32), bits)
    equal = (warps == warps[:, :1]).all(axis=1, keepdims=True)
    np.testing.assert_array_equal(every.reshape(-1, 32), equal + 2 * total.reshape(-1, 32))


@pytest.mark.parametrize("n", [1000, 1024, 37])
def test_votes_after_returns(collection: ctypes.CDLL, random: np.random.Generator, n: int) -> None:
    x = random.integers(0, 100, n).astype(np.int32)
    x[: n // 2] = np.maximum(x[: n // 2], 6)
    ballot = np.zeros(n, np.uint32)
    some, every, count = (np.zeros_like(x) for _ in range(3))
    for _ in range(2):  # the last call's values must not count
        run(collection.votes_late_run, x, ballot, some, every, count, n)
    for i in range(n):
        warp, block = x[i // 32 * 32 :][:32], x[i // 128 * 128 :][:128]
        assert ballot[i] == sum(1 << k for k in range(len(warp)) if warp[k] > 50)
        late = 2 * (block.max() > 97) + 4 * (block.min() > 0)
        assert some[i] == (warp.max() > 90) + late
        assert every[i] == (warp.min() > 5)
        assert count[i] == (block > 50).sum()


@pytest.mark.parametrize(("size", "wanted"), [(4, 2), (6, 4), (8, 92)])
def test_queens_by_recursion(collection: ctypes.CDLL, size: int, wanted: int) -> None:
    total = np.zeros(1, np.int32)
    run(collection.queens_run, size, total)
    assert total[0] == wanted


@pytest.mark.parametrize("blocks", [1, 7, 16, 33, 64])
@pytest.mark.parametrize("threads", [32, 1024])
def test_grids_of_any_size(collection: ctypes.CDLL, blocks: int, threads: int) -> None:
    n, rows = 40_007, 3
    at, turns, seen = np.zeros((rows, n), np.int32), np.zeros(rows, np.int32), np.zeros(n, np.int32)
    run(collection.places_run, at, turns, seen, n, blocks, threads, rows)
    np.testing.assert_array_equal(at, np.tile(np.arange(n) % (blocks * threads), (rows, 1)))
    np.testing.assert_array_equal(turns, n)
    np.testing.assert_array_equal(seen, np.arange(n))
