from __future__ import annotations

import platform

from sapwood.code.target import features_hash, host_target

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
