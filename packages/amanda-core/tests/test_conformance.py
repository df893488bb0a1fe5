"""The NumPy drivers do all that a driver must: that of what runs at once, and of what is staged."""

import amanda
import pytest
from amanda.testing import Conformance
from numpy_backend import driver, staging_driver
from numpy_backend.adapter import NumpyAdapter
from numpy_backend.staging_adapter import StagedAdapter

amanda.register_driver(driver.driver)  # to which all other tests are


@pytest.fixture
def staging():
    amanda.register_driver(staging_driver.driver)
    yield
    amanda.register_driver(driver.driver)


class TestNumpy(Conformance):
    adapter = NumpyAdapter()


@pytest.mark.usefixtures("staging")
class TestStagingDriverOnWhatRunsAtOnce(Conformance):
    adapter = NumpyAdapter()


@pytest.mark.usefixtures("staging")
class TestStaged(Conformance):
    adapter = StagedAdapter()
