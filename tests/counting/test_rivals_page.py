"""The pages about rivals are what their sources say now, and the comparison at equal budget is equal in what it says it is."""

from __future__ import annotations

import json

from bcnn.nets.registry import ARCHITECTURES


def test_the_pages_are_what_counts_audits_and_times_say() -> None:
    from tools.pages import rivals_page

    again = "run: python -m tools.pages.rivals_page"
    assert rivals_page.PAGE.read_text(encoding="utf-8") == rivals_page.page(), again
    assert rivals_page.WHICH.read_text(encoding="utf-8") == rivals_page.which(), again
    assert rivals_page.PICTURE.is_file(), again


def test_every_published_accuracy_is_of_a_registered_network_and_says_where_it_was_read() -> None:
    from tools.pages import rivals_page

    assert set(rivals_page.PUBLISHED) <= set(ARCHITECTURES)
    assert all(source for _, source in rivals_page.PUBLISHED.values())


def test_places_that_differ_in_numbers_only_are_one() -> None:
    from tools.pages.rivals_page import places

    assert places(["stem.0", "stages.1.0.shortcut.1", "stages.2.0.shortcut.1"]) == [
        "`stem.0`",
        "`stages.*.*.shortcut.*` (2)",
    ]


def test_every_network_was_taken_the_whole_way_or_is_not_in_the_results() -> None:
    from tools.release import every_network

    results = json.loads(every_network.RESULTS.read_text(encoding="utf-8"))
    assert results
    assert [name for name, result in results.items() if not every_network.passed(result)] == []
