import subprocess
from pathlib import Path

import pytest

from sapwood_lizard.hardware import DeviceAttributes, find_devices

DRIVER = r"""
#include <string.h>
#include <stddef.h>
int cuInit(unsigned flags) { return FAILS; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number + 40; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    strncpy(name, device == 40 ? "A" : "B", size);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 5000000000ul; return 0; }
int cuDeviceGetAttribute(int *value, int key, int device) {
    switch (key) {
        case 1: *value = 1024; break;
        case 16: *value = 132; break;
        case 39: *value = 2048; break;
        case 75: *value = 9; break;
        default: *value = 0;
    }
    return 0;
}
"""


def driver(folder: Path, fails: int) -> str:
    (folder / "driver.c").write_text(DRIVER)
    command = ["cc", "-shared", "-fPIC", f"-DFAILS={fails}", "driver.c", "-o", "driver.so"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "driver.so")


@pytest.mark.row("B-HW-1")
def test_the_driver_says_what_there_is(tmp_path: Path) -> None:
    facts = find_devices(driver(tmp_path, 0))
    assert facts == [
        DeviceAttributes(name, 1024, 2048, 9, 0, 132, 5_000_000_000) for name in ("A", "B")
    ]
    assert facts[0].max_blocks == 32


@pytest.mark.row("B-HW-1")
def test_no_driver_or_one_without_devices_is_normal(tmp_path: Path) -> None:
    assert find_devices("libthere-is-no-such-driver.so") == []
    assert find_devices("libm.so.6") == []
    assert find_devices(driver(tmp_path, 100)) == []
