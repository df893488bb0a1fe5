"""The routines of tools, made ready to run in a graph: as nodes that call Python, or functions."""
