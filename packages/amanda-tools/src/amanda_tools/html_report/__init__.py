"""A report is one HTML file that opens offline: what tools found, to sort, expand and search."""

from amanda_tools.html_report.contents import Contents
from amanda_tools.html_report.file import PageFile, write_page, write_report
from amanda_tools.html_report.files import contents_of_files
from amanda_tools.html_report.page import page_of
from amanda_tools.html_report.timeline import Timeline

__all__ = [
    "Contents",
    "PageFile",
    "Timeline",
    "contents_of_files",
    "page_of",
    "write_page",
    "write_report",
]
