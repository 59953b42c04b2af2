from __future__ import annotations

from sapwood.activity.dashboard_page import DashboardPage


def test_a_page_is_a_link_and_how_to_be_let_in() -> None:
    page = DashboardPage.at(["http://127.0.0.1:8787", "https://h:1"], "runs/3f", "lab")
    assert page.url == "http://127.0.0.1:8787/#/runs/3f"
    assert 'href="http://127.0.0.1:8787/#/runs/3f"' in page.html()
    assert "sapwood dashboard --cluster lab" in page.html()


def test_without_a_head_there_is_no_link() -> None:
    assert DashboardPage.at([], "tree", "lab").html() == ""
    assert DashboardPage().html() == ""


def test_names_are_escaped() -> None:
    assert "<b>" not in DashboardPage('http://x/"><b>', "<b>").html()
