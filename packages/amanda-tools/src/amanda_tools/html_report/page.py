"""A page is one file with its styles, its script and its data, which asks for nothing else."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from amanda_tools.notice import printable
from amanda_tools.optional_packages import needed

if TYPE_CHECKING:
    from amanda_tools.html_report.contents import Contents

# In the order in which they need each other.
_SCRIPTS = (
    *("values", "elements", "model", "table", "tree", "charts", "flame"),
    *("run", "timeline", "page"),
)
_CHARTS = ("flame", "steps", "lanes")  # specifications that Vega draws
_LICENCE = """\
/*! Vega, Vega-Lite and Vega-Embed, (c) University of Washington Interactive Data Lab, and what they
are made with; BSD-3-Clause and ISC licences, see https://github.com/vega */
"""


def packages_or_refused() -> tuple[Any, Any]:
    """Return the packages that make the page, and that have the library that draws its charts.

    Raises:
        ModuleNotFoundError: one is not installed.
    """
    way = "python -m pip install 'amanda-tools[report]'"
    return (
        needed("jinja2", f"an HTML report needs jinja2; {way}"),
        needed("vl_convert", f"an HTML report needs vl-convert-python; {way}"),
    )


def page_of(contents: Contents) -> bytes:
    """Return the HTML of a report.

    Names in it are text: what stands in the page's own markup is escaped, and what the scripts show
    never becomes markup. They are the page's own and, where it has a chart, Vega. No other is run,
    none makes code of text, and nothing is loaded.

    Raises:
        ModuleNotFoundError: a package that it needs is not installed.
    """
    jinja2, _ = packages_or_refused()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    data = contents.to_dict()
    scripts = [_script()]
    if data["timelines"] or data["flames"]["choices"]:
        scripts.insert(0, _vega())
    page: str = environment.from_string(_asset("page.html")).render(
        title=printable(contents.title),
        facts=[(printable(name), printable(value)) for name, value in contents.facts],
        sections=contents.sections,
        data=data,
        style=_asset("page.css"),
        scripts=scripts,
        digests=[_digest(script) for script in scripts],
        json=_json_in_html(data),
    )
    return page.encode("utf-8", "backslashreplace")


def _script() -> str:
    """Return the page's own script, with the specifications of its charts."""
    charts = {name: json.loads(_asset(f"{name}.json")) for name in _CHARTS}
    parts = [f"const SPECIFICATIONS = {_json_in_html(charts)};"]
    parts += [_asset(f"{name}.js") for name in _SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


@functools.cache
def _vega() -> str:
    """Return the script of Vega, which draws the charts; to put it together takes seconds."""
    _, vl_convert = packages_or_refused()
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"{_LICENCE}(() => {{\n{script}\n}})();\n"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json_in_html(data: object) -> str:
    """Write JSON that no markup ends, and that is no markup itself."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
