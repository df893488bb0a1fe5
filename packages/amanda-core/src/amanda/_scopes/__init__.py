"""What a program opens and leaves: scopes of tools."""
