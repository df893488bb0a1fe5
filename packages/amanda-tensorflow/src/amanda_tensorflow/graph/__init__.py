"""A call runs frames of nodes; this tells which operators they are, or compute the gradients of."""
