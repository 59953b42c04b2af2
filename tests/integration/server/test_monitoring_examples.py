"""The example rules and dashboard name metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.unit.server.test_metrics import figures

from sapwood.server.metrics import series

FOLDER = Path(__file__).parents[3] / "examples" / "monitoring"
NAMES = {name for name, _, _, _ in series(figures(1))}


def test_rules_name_metrics_that_there_are() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert len(rules) >= 8
    for rule in rules:
        named = set(re.findall(r"sapwood_\w+", rule["expr"]))
        assert named <= NAMES, rule["alert"]
        assert rule["annotations"]["summary"].endswith(".")


def test_dashboard_names_metrics_that_there_are() -> None:
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    for panel in panels:
        for target in panel["targets"]:
            named = set(re.findall(r"sapwood_\w+", target["expr"]))
            assert named, panel["title"]
            assert named <= NAMES, panel["title"]


@pytest.mark.nightly
def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here (Debian: package prometheus)")
    subprocess.run([promtool, "check", "rules", str(FOLDER / "alerts.yaml")], check=True)
