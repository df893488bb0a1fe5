""":class:`amanda.driving.Driver` was published here first; the name goes on working."""

from amanda._drivers.driver import Driver

__all__ = ["Driver"]
