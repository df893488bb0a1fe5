"""What runs: operators, one place in a model each, and the points at which routines run there."""
