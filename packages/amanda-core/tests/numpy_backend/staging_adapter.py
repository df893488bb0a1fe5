"""Has the conformance suite drive the framework by functions that are staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda

from numpy_backend.adapter import NumpyAdapter, NumpyModel
from numpy_backend.staging import Staged
from numpy_backend.staging_driver import driver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda.testing import Program

    from numpy_backend.adapter import Array, Function

amanda.register_driver(driver)  # in place of that of what runs at once


class StagedModel(NumpyModel):
    def prepared(self, function: Function) -> Function:
        return Staged(function)


class StagedAdapter(NumpyAdapter):
    eager = False
    parameters_known = False

    def build(self, program: Program, parameters: Mapping[str, Array]) -> StagedModel:
        return StagedModel(program, parameters)
