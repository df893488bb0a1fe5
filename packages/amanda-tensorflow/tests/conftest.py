import amanda_tensorflow  # noqa: F401  (it notes what TensorFlow forgets, from now on)
import tensorflow as tf

# Routines that open scopes hold threads of TensorFlow's while others run what is in them.
tf.config.threading.set_inter_op_parallelism_threads(4)
