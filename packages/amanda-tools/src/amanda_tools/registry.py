"""Tools have names: here is where they are found, their options, and how a line builds one.

A line is ``NAME`` or ``package.module:Class``, with options behind it if there are any:
``NAME:key=value,key=value``. A comma belongs to a value unless ``key=`` follows it. Packages add
names by entry points in the group ``amanda.tools``.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterable
from importlib.machinery import SOURCE_SUFFIXES
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import amanda
import click
from amanda.driving import entry_points_of

from amanda_tools.notice import described, refused
from amanda_tools.output import same_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.metadata import EntryPoint

_LINE = re.compile(
    r"(?P<name>[^:=]+)"
    r"(?: : (?P<cls>[A-Za-z_][\w.]*) (?=:|$) )?"
    r"(?: : (?P<options>.*) )?",
    re.VERBOSE | re.DOTALL,
)


class Option(NamedTuple):
    """An option of a tool is an argument of its class."""

    name: str
    annotation: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Tell whether it must be given."""
        return self.default is inspect.Parameter.empty


class Request(NamedTuple):
    """A request is for a tool that a line asks for, not yet built.

    Attributes:
        label: how messages name it.
        cls: its class.
        arguments: what the class takes, converted.
    """

    label: str
    cls: type[amanda.Tool]
    arguments: Mapping[str, Any]

    @property
    def out(self) -> str | os.PathLike[str] | None:
        """Return the file that it is to write, which by convention is its option ``out``."""
        out = self.arguments.get("out")
        return out if isinstance(out, (str, os.PathLike)) else None

    def build(self) -> amanda.Tool:
        """Build the tool.

        Raises:
            click.UsageError: it does not take the options, or cannot be built.
        """
        with refused(self.label):
            tool = self.cls(**self.arguments)
            _ = tool.subscriptions, tool.dependencies  # missing without super().__init__()
            return tool


def named_tools() -> dict[str, list[EntryPoint]]:
    """Return all tools that have a name, by name, which packages may use for different tools."""
    named: dict[str, dict[str, EntryPoint]] = {}
    for entry in sorted(
        entry_points_of("amanda.tools"), key=lambda entry: (entry.name, entry.value)
    ):
        named.setdefault(entry.name, {}).setdefault(entry.value, entry)
    return {name: list(entries.values()) for name, entries in named.items()}


def loaded(entry: EntryPoint) -> type[amanda.Tool]:
    """Return the class of a tool that has a name.

    Raises:
        click.UsageError: it cannot be loaded, or is no tool.
    """
    with refused(f"{entry.name} ({_announced(entry)}) cannot be loaded"):
        cls = entry.load()
    if not _is_tool(cls):
        raise click.UsageError(f"{entry.name} ({_announced(entry)}) is no tool")
    return typing.cast("type[amanda.Tool]", cls)


def ambiguity(name: str, entries: list[EntryPoint]) -> str:
    """Return what to say of a name that several packages use."""
    which = " and ".join(_announced(entry) for entry in entries)
    return f"several tools are named {name!r}: {which}; write {entries[0].value} for the first"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return what to add to the complaint that ``word`` is unknown."""
    known = list(known)
    if matches := difflib.get_close_matches(word, known, n=1):
        return f"; did you mean {matches[0]!r}?"
    return f"; there are {', '.join(sorted(known))}" if 0 < len(known) <= 20 else ""


def build(line: str) -> amanda.Tool:
    """Build the tool that a line describes.

    Raises:
        click.UsageError: there is no such tool or option, or a value does not fit.
    """
    return request(line).build()


def request(line: str) -> Request:
    """Return what a line asks for.

    Raises:
        click.UsageError: there is no such tool or option, or a value does not fit.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise click.UsageError(f"{line!r} is no tool; write NAME:key=value or module:Class")
    name, cls_name = match["name"], match["cls"]
    named = named_tools()
    if cls_name is None and name not in named:
        hint = nearest(name, named)
        raise click.UsageError(
            f"no tool {name!r}{hint}; a tool of your own is module:Class, and "
            "`amanda tools` lists the others"
        )
    if cls_name is not None and name in named:
        raise click.UsageError(f"option {cls_name!r} of {name} has no value; {cls_name}=...")
    if cls_name is None and len(named[name]) > 1:
        raise click.UsageError(ambiguity(name, named[name]))
    cls = loaded(named[name][0]) if cls_name is None else _load(name, cls_name)
    label = name if cls_name is None else cls_name
    with refused(label):
        return Request(label, cls, _arguments(label, options_of(cls), match["options"] or ""))


def check_outputs(
    requests: Sequence[Request], sources: Sequence[str], report: os.PathLike[str] | None = None
) -> None:
    """Check that no tool is to write a file of another one, of the program, or any Python code,
    nor the report one of these.

    Raises:
        click.UsageError: one is.
    """
    taken: list[tuple[str, str | os.PathLike[str]]] = []
    for label, out in (*((each.label, each.out) for each in requests), ("the report", report)):
        if out is None:
            continue
        for other, path in taken:
            if same_file(out, path):
                raise click.UsageError(f"{other} and {label} cannot both write {os.fspath(out)!r}")
        if any(same_file(out, source) for source in sources) or _is_code(out):
            option = f"{label}:out=" if out is not report else "--report "
            raise click.UsageError(f"{option}{os.fspath(out)} would overwrite a program")
        taken.append((label, out))


def options_of(cls: type[amanda.Tool]) -> list[Option]:
    """Return the options of a tool: what its class takes, explained in its docstring."""
    helps = _argument_docs(inspect.getdoc(cls) or "")
    return [
        Option(
            parameter.name,
            _type_of(parameter, cls),
            parameter.default,
            helps.get(parameter.name, ""),
        )
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def _announced(entry: EntryPoint) -> str:
    """Tell where the name of a tool comes from."""
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    return f"{entry.value} of {package}"


def _is_code(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is Python code at a path, which no tool is meant to write."""
    path = os.path.expanduser(path)
    return os.path.realpath(path).endswith(tuple(SOURCE_SUFFIXES)) and os.path.isfile(path)


def _is_tool(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, amanda.Tool) and value is not amanda.Tool


def _load(module_name: str, cls_name: str) -> type[amanda.Tool]:
    if os.getcwd() not in sys.path:  # where a tool of the user's own is likely to be
        sys.path.append(os.getcwd())
    with refused(f"{cls_name} cannot be taken from {module_name!r}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there, and imports what is not
            raise click.UsageError(f"no module {module_name!r} to take {cls_name} from") from None
        tools = [name for name, value in vars(module).items() if _is_tool(value)]
    if cls_name not in tools:
        hint = nearest(cls_name, tools)
        raise click.UsageError(f"no tool {cls_name!r} in {module_name}{hint}")
    return typing.cast("type[amanda.Tool]", getattr(module, cls_name))


def _arguments(label: str, options: list[Option], text: str) -> Mapping[str, Any]:
    known = {option.name: option for option in options}
    arguments = {}
    for part in re.split(r",(?=[A-Za-z_]\w*=)", text) if text else ():
        key, equals, value = part.partition("=")
        if key not in known:
            hint = nearest(key, known) if known else "; it has none"
            raise click.UsageError(f"{label} has no option {key!r}{hint}")
        if not equals:
            raise click.UsageError(f"option {key!r} of {label} has no value; {key}=...")
        if key in arguments:
            raise click.UsageError(f"{label} is given option {key!r} more than once")
        try:
            arguments[key] = _converted(value, known[key].annotation)
        except Exception as error:  # of whatever class the annotation names
            raise click.UsageError(f"{label}:{key}={value}: {described(error)}") from None
    missing = [o.name for o in options if o.required and o.name not in arguments]
    if missing:
        raise click.UsageError(f"{label} needs an option; {label}:{missing[0]}=...")
    return arguments


def _converted(text: str, annotation: Any) -> Any:
    """Return an option's text as the type that its annotation says; text if it says nothing."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(text, inner)
    if origin is Literal:
        choices = {str(choice): choice for choice in inner}
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return choices[text]
    if origin is types.NoneType:
        if text.lower() != "none":
            raise ValueError(f"{text!r} is not none")
        return None
    if origin in (str, Any) or not isinstance(origin, type):
        return text
    if issubclass(origin, Iterable):
        element = inner[0] if inner else str
        items = [_converted(item, element) for item in text.split(",")]
        return items if inspect.isabstract(origin) else origin(items)  # type: ignore[call-arg]
    if inspect.isabstract(origin):  # os.PathLike
        return text
    return click.types.convert_type(origin).convert(text, None, None)


def _first_that_fits(text: str, annotations: Iterable[Any]) -> Any:
    """Convert as the first alternative that takes it; text takes anything and comes last."""
    errors = []
    for annotation in sorted(annotations, key=lambda a: a is str):
        try:
            return _converted(text, annotation)
        except Exception as error:
            errors.append(described(error))
    raise ValueError(" ".join(errors))


def _type_of(parameter: inspect.Parameter, cls: type) -> Any:
    """Return what a parameter's annotation says, or else its default's type; else text."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is parameter.empty:
        return str if default is None or default is parameter.empty else type(default)
    if not isinstance(annotation, str):
        return annotation
    module = inspect.getmodule(cls)
    try:
        return eval(annotation, vars(module) if module else {})
    except Exception:  # as a name that is imported for type checkers alone
        return str


def _argument_docs(doc: str) -> dict[str, str]:
    """Return the entries of the section ``Args:`` of a docstring, by name."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)*)", doc, re.MULTILINE)
    if section is None:
        return {}
    text = textwrap.dedent(section[1])
    entries = re.findall(r"^(\w+)(?: \(.*?\))?: (.*(?:\n[ ]+.*)*)", text, re.MULTILINE)
    return {name: " ".join(help.split()) for name, help in entries}
