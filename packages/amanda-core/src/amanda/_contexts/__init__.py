"""What an analysis routine sees of an operator, and what it inserts."""
