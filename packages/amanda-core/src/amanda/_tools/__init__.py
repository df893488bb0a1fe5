"""What a tool is, and what is done with it."""
