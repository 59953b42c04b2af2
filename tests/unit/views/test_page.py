"""A report is one file: its modules become one script, and its data cannot end their element."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter

import pytest

from sapwood.views.page import STATIC, bundled, report
from sapwood.views.run_page import RunPage

_TOP = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def test_modules_become_one_script_in_the_order_in_which_they_need_each_other() -> None:
    script = bundled("report.js")
    assert "import " not in re.sub(r"//.*", "", script)
    assert not re.search(r"^export ", script, re.MULTILINE)
    assert script.index("function seconds(") < script.index("class Timeline")
    assert script.index("class Timeline") < script.index("class RunPage")


@pytest.mark.parametrize("entry", ["report.js", "dashboard.js"])
def test_names_at_the_top_of_bundled_modules_are_unique(entry: str) -> None:
    counts = Counter(_TOP.findall(bundled(entry)))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("file", sorted(path.name for path in STATIC.glob("*.*")))
def test_no_file_of_the_dashboard_names_another_host_or_runs_code_that_is_inline(file: str) -> None:
    text = (STATIC / file).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"\son\w+=|<style|style=|<script(?![^>]* src=|[^>]*/json)", text)
    assert "innerHTML =" not in text  # text of programs and nodes never becomes markup


def test_what_a_run_says_of_itself_cannot_leave_its_element() -> None:
    evil = "</script><script>alert(1)</script>"
    page = report(RunPage(program=evil, state="done", answer={"result": evil}))
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 2
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["program"] == evil


def test_the_policy_of_a_report_lets_only_its_own_script_and_style_in() -> None:
    page = report(RunPage(program="pi", state="done"))
    for tag, directive in (('script type="module"', "script-src"), ("style", "style-src")):
        name = tag.split()[0]
        found = re.search(rf"<{re.escape(tag)}>(.*?)</{name}>", page, re.DOTALL)
        assert found is not None
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
