"""These modules take notes of gradients and functions while TensorFlow builds graphs."""
