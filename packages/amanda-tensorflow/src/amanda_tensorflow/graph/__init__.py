"""What a call runs: frames of nodes, which operators they are, and which gradients they compute."""
