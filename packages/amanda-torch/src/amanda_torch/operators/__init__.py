"""What PyTorch's operators are: their types, what they take and return, and what runs them."""
