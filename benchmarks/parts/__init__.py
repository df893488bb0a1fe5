"""The parts of the suite: each measures one thing, in a process of its own."""
