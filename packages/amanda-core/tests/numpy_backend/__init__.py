"""A deep-learning framework on NumPy, its Amanda driver, and the driver's conformance adapter."""
