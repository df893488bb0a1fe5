"""What is decided: who looks at an operator, and what is done there."""
