"""What a thread runs under: its active tools, and the code of a tool while it runs that."""
