"""What runs in PyTorch arrives here: operators, functions, and calls of modules."""
