"""What is known of a tensor: its values, its parameter, and what may stand for it."""
