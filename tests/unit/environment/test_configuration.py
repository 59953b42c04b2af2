import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.environment.configuration import Configuration, load_configuration
from sapwood.environment.schema import all_settings
from sapwood.environment.settings import LevelPair, Settings

Load = Callable[..., Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a loader that sees only files under the test's folder.

    Files are given by layer: ``site``, ``user``, ``project``, ``pyproject``.
    """
    paths = {
        "site": tmp_path / "etc/config.toml",
        "user": tmp_path / "home/sapwood/config.toml",
        "project": tmp_path / "project/sapwood.toml",
        "pyproject": tmp_path / "project/pyproject.toml",
    }

    def run(
        flags: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        **texts: str,
    ) -> Configuration:
        for layer, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if layer in texts:
                path.write_text(texts[layer])
        folder = tmp_path / "project" / "deep" / "er"
        folder.mkdir(parents=True, exist_ok=True)
        return load_configuration(
            flags,
            variables={"XDG_CONFIG_HOME": str(tmp_path / "home"), **(variables or {})},
            folder=folder,
            hostname="gpu17.example.org",
            site_file=paths["site"],
        )

    return run


def test_without_any_layer_everything_is_default(load: Load) -> None:
    configuration = load()
    assert configuration.settings == Settings()
    assert configuration.origin("log.console") == "default"
    assert repr(configuration) == "<Configuration all defaults>"


def test_the_higher_layer_wins(load: Load, tmp_path: Path) -> None:
    def text(agents: int) -> str:
        return f"[cluster]\nagents = {agents}\n"

    layers: dict[str, Any] = {
        "site": text(1),
        "user": text(2),
        "project": text(3),
        "variables": {"SAPWOOD_CLUSTER__AGENTS": "4"},
        "flags": {"cluster.agents": "5"},
    }
    origins = [
        f"{tmp_path}/etc/config.toml:2",
        f"{tmp_path}/home/sapwood/config.toml:2",
        f"{tmp_path}/project/sapwood.toml:2",
        "SAPWOOD_CLUSTER__AGENTS",
        "flag",
    ]
    for count in range(1, 6):
        configuration = load(**dict(list(layers.items())[:count]))
        assert configuration.settings.cluster.agents == count
        assert configuration.origin("cluster.agents") == origins[count - 1]


def test_layers_are_merged_key_by_key(load: Load) -> None:
    settings = load(
        site='[log]\nconsole = "error"\n', project='[log]\nfile_level = "info"\n'
    ).settings
    assert (settings.log.console, settings.log.file_level) == ("error", "info")


def test_a_table_of_pyproject_is_a_project_file(load: Load, tmp_path: Path) -> None:
    configuration = load(pyproject='[project]\nname = "x"\n[tool.sapwood.cluster]\nagents = 3\n')
    assert configuration.settings.cluster.agents == 3
    assert configuration.origin("cluster.agents") == f"{tmp_path}/project/pyproject.toml:4"
    both = load(pyproject="[tool.sapwood.cluster]\nagents = 3\n", project="[cluster]\nagents = 4\n")
    assert both.settings.cluster.agents == 4


def test_a_pyproject_of_somebody_else_is_left_alone(load: Load) -> None:
    assert load(pyproject="[tool.other]\nx = 1\n").settings == Settings()


def test_host_overlays_apply_where_the_name_matches(load: Load, tmp_path: Path) -> None:
    configuration = load(
        site="""\
[limits]
memory = "1 GiB"
[host."gpu*".limits]
memory = "8 GiB"
[host."*.example.org"]
cluster.fanout = 4
[host."cpu*".limits]
memory = "2 GiB"
"""
    )
    assert configuration.settings.limits.memory == 8 * 2**30
    assert configuration.origin("limits.memory") == f"{tmp_path}/etc/config.toml:4"
    assert configuration.settings.cluster.fanout == 4


def test_overlays_for_other_hosts_are_checked_too(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown setting 'limits\.memroy'"):
        load(site='[host."cpu*".limits]\nmemroy = 1\n')


def test_units_are_read_everywhere(load: Load) -> None:
    settings = load(
        site='[limits]\nmemory = "128 MiB"\ntime = "1.5 min"\n',
        variables={"SAPWOOD_CACHE__SIZE": "3 GB"},
        flags={"comm.heartbeat": "250 ms", "limits.output": 1000},
    ).settings
    assert settings.limits.memory == 128 * 2**20
    assert settings.limits.time == 90
    assert settings.cache.size == 3 * 10**9
    assert settings.comm.heartbeat == 0.25
    assert settings.limits.output == 1000


def test_levels_of_components(load: Load) -> None:
    configuration = load(
        site='[log.components.comm]\nconsole = "debug"\n'
        '[log.components."data.npy"]\nfile = "off"\n',
        variables={"SAPWOOD_LOG__COMPONENTS__COMM__FILE": "error"},
    )
    assert configuration.settings.log.components == {
        "comm": LevelPair(console="debug", file="error"),
        "data.npy": LevelPair(file="off"),
    }
    assert configuration.origin("log.components.comm.file").startswith("SAPWOOD_")


def test_paths_in_a_file_are_relative_to_it(load: Load, tmp_path: Path) -> None:
    settings = load(
        user='[environment]\nsource = ["site.sh", "/abs/x.sh"]\n[cache]\nfolder = "cache"\n',
        variables={"SAPWOOD_LOG__FILE": "here.jsonl"},
    ).settings
    assert settings.environment.source == [f"{tmp_path}/home/sapwood/site.sh", "/abs/x.sh"]
    assert settings.cache.folder == f"{tmp_path}/home/sapwood/cache"
    assert settings.log.file == "here.jsonl"


def test_lists_in_variables(load: Load) -> None:
    for text in ("a.sh:b.sh", '["a.sh", "b.sh"]'):
        settings = load(variables={"SAPWOOD_ENVIRONMENT__SOURCE": text}).settings
        assert settings.environment.source == ["a.sh", "b.sh"]


def test_empty_and_foreign_variables_do_not_count(load: Load) -> None:
    variables = {"SAPWOOD_LOG__CONSOLE": "", "SAPWOOD_HOME": "/x", "OTHER__THING": "1"}
    assert load(variables=variables).settings == Settings()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[log]\nconsole = "loud"\n', 2, r"log\.console cannot be 'loud'.*one of debug, info"),
        (
            "[log]\n\nconsol = 1\n",
            3,
            r"unknown setting 'log\.consol'.*did you mean 'console' in log",
        ),
        ("[lgo]\nconsole = 1\n", 1, r"unknown setting 'lgo'.*did you mean 'log'"),
        ("console = 1\n", 1, r"unknown setting 'console'.*did you mean log\.console"),
        ('[cluster]\nagents = "4"\n', 2, "a whole number from 0 on"),
        ("[cluster]\nagents = -1\n", 2, "a whole number from 0 on"),
        ("[cluster]\nagents = true\n", 2, "a whole number"),
        ("[limits]\nagents = 0\n", 2, "a whole number from 1 on"),
        ('[limits]\nmemory = "1 XB"\n', 2, 'a size such as 1024 or "64 KiB"'),
        ("[limits]\ntime = -1.0\n", 2, 'a duration such as 2.5 or "500 ms"'),
        ("cluster = 4\n", 1, r"write \[cluster\]"),
        ("[environment]\nsource = 'a.sh'\n", 2, "a list of texts"),
        ("[log]\nconsole = debug\n", 2, "not valid TOML"),
        ('[comm]\nheartbeat = 1.0\nfailure_after = "500 ms"\n', 3, r"cannot count as lost"),
        ("host = 3\n", 1, "host cannot be 3"),
        ('[host]\n"gpu*" = 3\n', 2, r"host\.gpu\* cannot be 3"),
        ("[log.components]\ncomm = 1\n", 2, r"write \[log\.components\.comm\]"),
        ("[log.components.comm]\nlevel = 1\n", 2, r"settings of log\.components\.comm are"),
    ],
)
def test_a_wrong_file_is_an_error_with_line_and_hint(
    load: Load, text: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        load(site=text)
    assert f"config.toml:{line}" in caught.value.where
    assert caught.value.hint


def test_wrong_variables_and_flags_name_themselves(load: Load) -> None:
    with pytest.raises(ConfigurationError, match=r"SAPWOOD_LOG__CONSOLL.*did you mean 'console'"):
        load(variables={"SAPWOOD_LOG__CONSOLL": "debug"})
    with pytest.raises(ConfigurationError, match=r"SAPWOOD_CLUSTER__AGENTS.*whole number"):
        load(variables={"SAPWOOD_CLUSTER__AGENTS": "many"})
    with pytest.raises(ConfigurationError, match=r"\(flag\).*one of debug"):
        load(flags={"log.console": "loud"})
    with pytest.raises(ConfigurationError, match="unknown setting 'log'"):
        load(flags={"log": "loud"})


def test_asking_for_the_origin_of_nothing(load: Load) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'console'"):
        load().origin("log.consol")


def test_a_file_that_is_not_text_is_an_error(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"binary\.toml"):
        load_configuration(variables={}, folder=tmp_path, site_file=path)


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_configuration(variables={}, folder=tmp_path, site_file=tmp_path)


def test_rows_show_every_setting_with_layer_and_origin(load: Load) -> None:
    rows = {row.key: row for row in load(flags={"cache.size": "1 GiB"}).rows()}
    assert len(rows) == len([one for one in all_settings() if "*" not in one.key])
    assert (rows["cache.size"].value, rows["cache.size"].layer) == ('"1 GiB"', "flag")
    assert rows["log.console"].origin == "default"


@given(
    st.integers(0, 2**40),
    st.floats(0, 1e6),
    st.sampled_from(["debug", "off"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: "*" not in name
    ),
)
@pytest.mark.slow
def test_the_configuration_written_is_the_configuration_read(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    seconds: float,
    level: str,
    component: str,
) -> None:
    folder = tmp_path_factory.mktemp("configuration")
    flags = {"limits.memory": size, "limits.time": seconds, "log.console": level}
    options: dict[str, Any] = {"variables": {}, "folder": folder}
    missing = folder / "missing"
    settings = load_configuration(flags, site_file=missing, **options).settings
    (folder / "a.toml").write_text(
        f"[log.components.{_quoted(component)}]\nconsole = 'info'\n", encoding="utf-8"
    )
    named = load_configuration(flags, site_file=folder / "a.toml", **options)
    assert named.settings.log.components == {component: LevelPair(console="info")}
    (folder / "b.toml").write_text(named.to_toml(), encoding="utf-8")
    again = load_configuration(site_file=folder / "b.toml", **options).settings
    assert again == named.settings
    assert again.limits == settings.limits


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


FIRST_IN_THREADS = """
import sys, threading
from sapwood.environment.configuration import load_configuration

sys.setswitchinterval(1e-6)
ready = threading.Barrier(6)

def load():
    ready.wait()
    load_configuration()

threads = [threading.Thread(target=load) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_threads_may_load_the_configuration_for_the_first_time_at_once() -> None:
    command = [sys.executable, "-c", FIRST_IN_THREADS]
    ends = [subprocess.run(command, timeout=60, check=False).returncode for _ in range(6)]
    assert ends == [0] * 6


def test_a_working_folder_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigurationError, match="the current folder has been removed"):
        load_configuration({})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("limits.keep", 2**63),
        ("limits.memory", "99999999999 TiB"),
        ("limits.iterations", "99999999999999999999999"),
        ("cluster.agents", -(2**64)),
    ],
)
def test_numbers_of_more_than_64_bits_are_refused(load: Load, key: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{key} cannot be"):
        load(flags={key: value})


def test_a_table_of_texts_is_written_as_it_is_read(load: Load) -> None:
    configuration = load(
        project='[environment.variables]\nMODE = "test"\n"A-B" = "1"\n',
        flags={"environment.variables.MODE": "5"},
    )
    variables = {"MODE": "5", "A-B": "1"}
    assert configuration.settings.environment.variables == variables
    assert load(project=configuration.to_toml()).settings.environment.variables == variables
