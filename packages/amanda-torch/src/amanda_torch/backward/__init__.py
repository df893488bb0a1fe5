"""How tools see and change the backward pass, node by node and as a whole."""
