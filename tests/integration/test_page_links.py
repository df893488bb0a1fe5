"""Links between pages, and to programs and folders, lead to what there is in the repository."""

import re

import pages
import pytest

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
MEASURED = "benchmarks/RESULTS.md"  # which a run of the benchmarks writes


def anchors(page):
    """The headings of a page as links have them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", pages.text(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages.every())
def test_links_of_a_page_lead_somewhere(page):
    place = (pages.ROOT / page).parent
    for link, anchor in LINK.findall(CODE.sub("", BLOCK.sub("", pages.text(page)))):
        target = (place / link).resolve() if link else pages.ROOT / page
        name = target.relative_to(pages.ROOT).as_posix()
        assert target.exists() or name == MEASURED, link
        assert not anchor or anchor in anchors(name), f"{link}#{anchor}"
