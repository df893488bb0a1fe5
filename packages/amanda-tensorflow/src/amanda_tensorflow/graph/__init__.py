"""These modules tell which operators the nodes of a graph are, or compute the gradients of."""
