from __future__ import annotations

import pytest

from sapwood.code.target import host_target, parse_target
from sapwood.code.zig import zig_processor, zig_target


@pytest.mark.parametrize(
    ("text", "name", "processor"),
    [
        ("aarch64-linux-gnu", "aarch64-linux-gnu.2.17", "-mcpu=baseline"),
        ("ppc64le-linux-gnu.2.28", "powerpc64le-linux-gnu.2.28", "-mcpu=baseline"),
        ("x86_64-linux-musl,cpu=x86-64-v3", "x86_64-linux-musl", "-mcpu=x86_64_v3"),
    ],
)
def test_targets_have_names_of_zig(text: str, name: str, processor: str) -> None:
    assert zig_target(parse_target(text)) == name
    assert zig_processor(parse_target(text)) == processor


def test_for_this_machine_zig_uses_all_of_its_processor() -> None:
    assert zig_processor(host_target()) == "-mcpu=native"
