"""The rewriter inserts stages into frames, and has each node read the right version of a tensor."""
