import amanda_tensorflow  # noqa: F401  (it notes what TensorFlow forgets, from now on)
