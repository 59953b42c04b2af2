from pathlib import Path

from sapwood.environment.configuration import load_configuration
from sapwood.environment.settings import Settings
from sapwood.environment.settings_toml import render_toml


def test_the_text_of_the_defaults_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(render_toml(Settings()))
    configuration = load_configuration(variables={}, folder=tmp_path, site_file=path)
    assert configuration.settings == Settings()
    assert configuration.origin("comm.heartbeat").startswith(f"{path}:")
