"""Some results need packages, and nothing else does."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, message: str) -> Any:
    """Import a module of a package that is needed now.

    Raises:
        ModuleNotFoundError: with the message; it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(message, name=module.partition(".")[0]) from error
