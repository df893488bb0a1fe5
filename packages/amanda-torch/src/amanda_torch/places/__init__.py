"""Which operator one is: where in a model, and where in the program, it is called."""
