"""The front ends run rewritten copies of functions and of what sessions are asked for."""
