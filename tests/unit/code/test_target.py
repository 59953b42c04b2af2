from __future__ import annotations

import platform

import pytest

from sapwood.code.target import features_hash, host_target, parse_target
from sapwood.core.errors import InputError

INTEL = (
    "processor : 0\nmodel : 1\nflags : fpu sse avx2\nbogomips : 10\n\nprocessor : 1\nflags : x\n"
)


def test_the_host_is_a_target() -> None:
    target = host_target()
    assert target.architecture == platform.machine()
    assert target.libc
    assert len(target.features) == 8


def test_only_features_and_model_count() -> None:
    assert features_hash(INTEL) == features_hash(INTEL.replace("bogomips : 10", "bogomips : 11"))
    assert features_hash(INTEL) == features_hash(INTEL.replace("sse avx2", "avx2 sse"))
    assert features_hash(INTEL) != features_hash(INTEL.replace("avx2", "avx512f"))
    assert features_hash(INTEL) != features_hash(INTEL.replace("model : 1", "model : 2"))


@pytest.mark.row("A-TOOL-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aarch64-linux-gnu", "aarch64 glibc 2.17 cpu-generic"),
        ("riscv64-linux-gnu", "riscv64 glibc 2.27 cpu-generic"),
        ("x86_64-linux-musl", "x86_64 musl cpu-generic"),
        ("aarch64-linux-gnu.2.31,cpu=a64fx", "aarch64 glibc 2.31 cpu-a64fx"),
        ("x86_64-linux-gnu,cuda=sm_90", "x86_64 glibc 2.17 cpu-generic cuda sm_90"),
        ("x86_64-linux-gnu,opencl", "x86_64 glibc 2.17 cpu-generic opencl"),
    ],
)
def test_a_target_is_read_from_text(text: str, expected: str) -> None:
    target = parse_target(text)
    assert str(target) == expected
    assert not target.is_host
    assert text.startswith(target.triple)


def test_native_is_this_machine() -> None:
    assert parse_target("native") == host_target()
    assert host_target().is_host
    assert parse_target("native,cuda=sm_90a").gpu_architecture == "sm_90a"
    assert parse_target("native,cuda=sm_90a").is_host


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("aarch46-linux-gnu", "did you mean aarch64"),
        ("aarch64", "aarch64-linux-gnu"),
        ("x86_64-linux-musl.1.2", "only glibc"),
        ("native,gpu=sm_90", "cuda=sm_NN"),
        ("native,cuda", "cuda=sm_90"),
        ("native,cuda=90", "cuda=sm_90"),
        ("native,cpu=", "cpu=MODEL"),
        ("native,cpu=deadbeef", "cpu=MODEL"),
        ("", "native"),
    ],
)
def test_what_is_no_target_is_refused(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert hint in caught.value.hint
