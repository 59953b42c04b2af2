from importlib.resources import files
from pathlib import Path

from sapwood.environment.configuration import load_configuration
from sapwood.environment.defaults import default_toml
from sapwood.environment.settings import Settings


def test_the_packaged_file_holds_the_defaults() -> None:
    packaged = files("sapwood.environment").joinpath("defaults.toml").read_text("utf-8")
    assert packaged == default_toml(), "python -m sapwood.environment.defaults prints it"


def test_the_packaged_file_is_valid_and_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(default_toml())
    configuration = load_configuration(variables={}, folder=tmp_path, site_file=path)
    assert configuration.settings == Settings()
    assert configuration.origin("comm.heartbeat").startswith(f"{path}:")
