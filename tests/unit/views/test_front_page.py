from __future__ import annotations

import gzip
import json
import re

from sapwood.views.front_page import FrontPage, page_of


def test_all_that_is_seen_first_is_in_one_answer() -> None:
    page = FrontPage()
    first = {"cluster": {"name": "</script><b>", "version": "1"}}
    text = gzip.decompress(page.page(json.dumps(first).encode())).decode()
    assert "stylesheet" not in text
    assert text.count(" src=") == 1
    assert f'src="static/{page.script_name}"' in text
    found = re.search(r'<script type="application/json" id="first">(.*?)</script>', text)
    assert found is not None
    assert json.loads(found[1]) == first
    assert gzip.decompress(page.page(b"{}")).decode().count("</script>") == 2


def test_the_page_names_its_cluster_for_the_commands_on_it() -> None:
    text = gzip.decompress(FrontPage("a&b").page(b"{}")).decode()
    assert 'data-cluster="a&amp;b"' in text
    assert "<code>sapwood top --cluster &#x27;a&amp;b&#x27;</code>" in text
    assert "<code>sapwood dashboard --cluster nw</code>" in page_of("login.html", "nw")


def test_the_script_is_kept_by_browsers_until_it_changes() -> None:
    page, again = FrontPage(), FrontPage()
    assert (page.script_name, page.script) == (again.script_name, again.script)
    assert b"EventSource" in gzip.decompress(page.script)
