"""Routines are made ready to run in a graph, as nodes that call Python or as functions."""
