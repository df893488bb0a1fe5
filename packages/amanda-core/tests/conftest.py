"""Has the NumPy driver registered."""

import numpy_backend.adapter  # noqa: F401
