from __future__ import annotations

from sapwood.core.html_table import MAX_ROWS, escaped, html_table


def test_all_is_escaped() -> None:
    made = html_table([("<i>", "a&b")], heading=("<u>",), caption="<s>")
    assert made.count("<") == made.count(">")
    for bad in ("<i>", "<u>", "<s>", "a&b"):
        assert bad not in made
        assert escaped(bad) in made


def test_of_many_rows_the_rest_is_counted() -> None:
    made = html_table([(number, "x") for number in range(MAX_ROWS + 7)])
    assert made.count("<tr>") == MAX_ROWS + 1
    assert '<td colspan="2">… 7 more</td>' in made
    assert "more" not in html_table([(1,)] * MAX_ROWS)
