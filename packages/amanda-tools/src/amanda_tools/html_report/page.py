"""The page: one file with its styles, its script and its data, which asks for nothing else."""

from __future__ import annotations

import base64
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
    *("values", "elements", "model", "table", "tree", "flame"),
    *("run", "drawing", "timeline", "page"),
)


def jinja2_or_refused() -> Any:
    """The package that makes the page.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    return needed(
        "jinja2", "an HTML report needs jinja2; python -m pip install 'amanda-tools[report]'"
    )


def page_of(contents: Contents) -> bytes:
    """The HTML of a report.

    Names in it are text: what stands in the page's own markup is escaped, and what the script shows
    never becomes markup. No other script is run, and nothing is loaded.

    Raises:
        ModuleNotFoundError: jinja2 is not installed.
    """
    jinja2 = jinja2_or_refused()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = "".join(f"{_asset(f'{name}.js')}\n" for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = contents.to_dict()
    page: str = environment.from_string(_asset("page.html")).render(
        title=printable(contents.title),
        facts=[(printable(name), printable(value)) for name, value in contents.facts],
        sections=contents.sections,
        data=data,
        style=_asset("page.css"),
        script=script,
        digest=digest,
        json=_json_in_html(data),
    )
    return page.encode("utf-8", "backslashreplace")


def _json_in_html(data: object) -> str:
    """JSON that no markup ends, and that is no markup itself."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
