"""How an execution is carried out as its plan says."""
