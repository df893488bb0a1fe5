"""This package is the Amanda driver for JAX."""

from amanda_jax.driver import driver
from amanda_jax.model import instrument

__all__ = ["driver", "instrument"]
