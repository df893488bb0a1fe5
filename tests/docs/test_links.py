"""Every link in the site that ``mkdocs build`` made leads somewhere."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

SITE = Path(__file__).parents[2] / "build" / "site"
HOME = "https://site.invalid/"  # only to put addresses together
HOST = re.compile(r"([a-z0-9-]+\.)+[a-z]{2,}|localhost:\d+")


class Page(HTMLParser):
    """The links of a page, and the places in it that others may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def page(path):
    return Page(path)


def address(path):
    """Where a page is; one of errors is shown at any address, and has its links from the top."""
    return urljoin(HOME, path.relative_to(SITE).as_posix().removesuffix("index.html"))


def links():
    """The address of each link, with the page that it is on."""
    return {
        (urljoin(address(path), link), address(path))
        for path in SITE.rglob("*.html")
        for link in page(path).links
        if not link.startswith(("data:", "javascript:"))
    }


@pytest.fixture(scope="module")
def found():
    assert SITE.exists(), "the session docs builds the site ahead of its tests"
    return links()


def test_those_within_the_site_lead_to_a_file_and_a_place_in_it(found):
    nowhere = []
    for link, origin in found:
        target, anchor = urldefrag(link)
        if not target.startswith(HOME):
            continue
        path = SITE / unquote(target.removeprefix(HOME))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file() or (anchor and unquote(anchor) not in page(path).anchors):
            nowhere.append(f"{link} on {origin}")
    assert not nowhere
    assert len(found) > 1000


def test_those_that_lead_elsewhere_are_addresses(found):
    elsewhere = sorted({link for link, _ in found if not link.startswith(HOME)})
    print("links to other sites, which are not followed:", *elsewhere, sep="\n")
    for link in elsewhere:
        parts = urlsplit(link)
        assert parts.scheme == "https", link
        assert HOST.fullmatch(parts.netloc), link
        assert not re.search(r"\s", link), link
