"""A hook of MkDocs: the site has the repository's pages, where they are.

A page is named by its path from the repository's root on. Links between pages are thereby the same
in the repository and in the site, and MkDocs checks them. What else a page links to (a program, a
folder) becomes a page of the site that shows it, since the project has no address yet at which a
reader would find it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/**/*.md", "packages/*/README.md", "packages/*/docs/*.md", "benchmarks/*.md")
AS_THEY_ARE = (".ipynb", ".png", ".svg")
LINK = re.compile(r"\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml"}
HOME = "docs/index.md"
RESULTS = "benchmarks/RESULTS.md"
NOT_MEASURED = """\
# Results of the benchmarks

They were not measured before this site was built. `python -m nox -s benchmarks` measures them.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository to what the theme has."""
    pages = _matching(PAGES)
    for path in pages:
        files.append(_placed(_name(path), config))
    if not (ROOT / RESULTS).exists():
        files.append(File.generated(config, RESULTS, content=NOT_MEASURED))
    for path in pages:
        for target in _targets(_name(path), path.read_text("utf-8")):
            if not _is_there(target, files) and (ROOT / target).exists():
                make = _placed if target.endswith(AS_THEY_ARE) else _showing
                files.append(make(target, config))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links to what is no page itself lead to the page that shows it."""
    if page.file.src_uri == HOME:
        page.meta["hide"] = ["navigation", "toc"]  # it has no other page beside it
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        for other in (f"{target}/README.md", f"{target}.md"):
            if files.get_file_from_path(other) is not None:
                return f"]({posixpath.relpath(other, folder)}{link[2]})"
        return link[0]

    return LINK.sub(shown, markdown)


def _matching(patterns: tuple[str, ...]) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _placed(name: str, config: MkDocsConfig) -> File:
    """A file of the repository; what lies in ``docs`` is at the top of the site."""
    file = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
    moved = {"README.md": "readme/index.html", "docs/README.md": "these-pages/index.html"}
    file.dest_uri = moved.get(name) or file.dest_uri.removeprefix("docs/")
    return file


def _showing(name: str, config: MkDocsConfig) -> File:
    """A page that shows a program or a folder."""
    content = _folder(name) if (ROOT / name).is_dir() else _program(name)
    level = InclusionLevel.NOT_IN_NAV
    return File.generated(config, f"{name}.md", content=content, inclusion=level)


def _targets(page: str, text: str) -> Iterator[str]:
    """What a page links to in the repository."""
    for link in LINK.finditer(CODE.sub("", text)):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))


def _is_there(target: str, files: Files) -> bool:
    names = (target, f"{target}.md", f"{target}/README.md")
    return any(files.get_file_from_path(name) is not None for name in names)


def _program(name: str) -> str:
    path = ROOT / name
    text = path.read_text("utf-8")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=2))
    return (
        f"# {path.name}\n\n`{name}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"
    )


def _folder(name: str) -> str:
    """The programs in a folder, each with the first line of what it says of itself."""
    lines = [f"# {posixpath.basename(name)}\n", "| file | what |", "| --- | --- |"]
    for path in sorted((ROOT / name).rglob("*.py")):
        said = re.match(r'"""(.*)', path.read_text("utf-8"))
        text = said[1].removesuffix('"""') if said else ""
        lines.append(f"| `{_name(path)}` | {text} |")
    return "\n".join(lines) + "\n"
