from pathlib import Path

import pytest

from sapwood.cli import platform_check as platform_module
from sapwood.cli.platform_check import PlatformItem, PlatformReport, check_platform
from sapwood.code.installed_tools import Found
from sapwood.environment.settings import CacheSettings, Settings


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.row("A-ENV-2")
def test_everything_is_looked_at() -> None:
    report = check_platform(devices=lambda: [Found("cuda 0", "a GPU")])
    seen = {(item.group, item.name) for item in report.items}
    assert seen >= {
        ("processor", "architecture"),
        ("processor", "model"),
        ("processor", "usable cores"),
        ("memory", "total"),
        ("memory", "available"),
        ("memory", "/dev/shm"),  # noqa: S108 - the name of an item, not a file to write
        ("disk", "build cache"),
        ("compiler", "C"),
        ("compiler", "C++"),
        ("limits", "open files"),
        ("limits", "processes"),
        ("python", "Python"),
        ("python", "numpy"),
    }
    assert ("gpu", "cuda 0") in seen
    assert all(item.hint for item in report.items if item.status != "ok")


def test_a_missing_item_makes_the_report_not_ok() -> None:
    fine = PlatformItem("memory", "total", "1 GiB")
    low = PlatformItem("memory", "free", "1 B", "warning", "end <other> programs")
    none = PlatformItem("compiler", "C", "none", "missing", "install gcc")
    assert PlatformReport((fine, low)).ok
    assert not PlatformReport((fine, none)).ok
    assert PlatformReport((fine, none)).find("compiler", "C") is none
    assert "end &lt;other&gt; programs" in PlatformReport((low,))._repr_html_()


def test_little_memory_and_disk_are_warnings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform_module, "available_memory", lambda: 2**20)
    monkeypatch.setattr(platform_module, "MIN_DISK", 2**60)
    settings = Settings(cache=CacheSettings(folder=str(tmp_path / "not" / "yet")))
    report = check_platform(settings)
    memory, disk = report.find("memory", "available"), report.find("disk", "build cache")
    assert memory is not None
    assert (memory.status, memory.value) == ("warning", "1 MiB")
    assert disk is not None
    assert disk.status == "warning"
    assert str(tmp_path / "not" / "yet") in disk.value
    assert report.ok
