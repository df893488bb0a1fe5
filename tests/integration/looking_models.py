"""One small net on PyTorch, on Keras and in a session: a linear layer twice, and another one."""

import keras
import numpy as np
import torch
from torch import nn

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 3)).astype(np.float32)
W1, W2 = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 3), (3, 2)))
B1, B2 = (RANDOM.standard_normal(size).astype(np.float32) for size in (3, 2))


def plain(x=X, change=lambda y: y):
    """What the second ReLU gives, as changed, and what the net gives."""
    first = np.maximum(x @ W1 + B1, 0)
    hidden = change(np.maximum(first @ W1 + B1, 0))
    return hidden, hidden @ W2 + B2


def gradients():
    """Of the sum of squares of what it gives, by the names of the parameters."""
    w1, b1, w2, b2 = (torch.tensor(value, requires_grad=True) for value in (W1, B1, W2, B2))
    hidden = torch.from_numpy(X)
    for _ in range(2):
        hidden = (hidden @ w1 + b1).relu()
    (hidden @ w2 + b2).square().sum().backward()
    return {"w1": w1.grad, "b1": b1.grad, "w2": w2.grad, "b2": b2.grad}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)
        for layer, weight, bias in ((self.first, W1, B1), (self.second, W2, B2)):
            layer.weight.data.copy_(torch.from_numpy(weight.T.copy()))
            layer.bias.data.copy_(torch.from_numpy(bias))

    def forward(self, x):
        for _ in range(2):
            x = self.first(x).relu()
        return self.second(x)


class OnTorch:
    def __init__(self):
        self.model = Net()

    def run(self, x=X):
        return self.model(torch.from_numpy(x)).detach().numpy()

    def train(self):
        self.model(torch.from_numpy(X)).square().sum().backward()


class OnKeras:
    def __init__(self):
        x = keras.Input((3,))
        first, second = keras.layers.Dense(3, name="first"), keras.layers.Dense(2, name="second")
        y = keras.layers.ReLU(name="relu2")(first(keras.layers.ReLU(name="relu1")(first(x))))
        self.model = keras.Model(x, second(y), name="net")
        first.set_weights([W1, B1])
        second.set_weights([W2, B2])
        self.model.compile(
            keras.optimizers.SGD(0.0),
            lambda y_true, y_pred: 4 * keras.ops.sum(keras.ops.square(y_pred), axis=-1),  # a mean
        )

    def run(self, x=X):
        return self.model.predict_on_batch(x)

    def train(self):
        self.model.train_on_batch(X, np.zeros((4, 2), np.float32))


class InASession:
    def __init__(self):
        import tensorflow as tf  # not where Keras runs on PyTorch

        v1 = tf.compat.v1
        with tf.Graph().as_default():
            self.x = v1.placeholder(tf.float32, (None, 3))
            w1, b1, w2, b2 = (
                v1.get_variable(name, initializer=value)
                for name, value in (("w1", W1), ("b1", B1), ("w2", W2), ("b2", B2))
            )
            hidden = self.x
            for _ in range(2):
                hidden = tf.nn.relu(tf.matmul(hidden, w1) + b1)
            self.y = tf.matmul(hidden, w2) + b2
            self.grads = tf.gradients(tf.reduce_sum(tf.square(self.y)), [w1, b1, w2, b2])
            start = v1.global_variables_initializer()
            self.session = v1.Session()
            self.session.run(start)

    def run(self, x=X):
        return self.session.run(self.y, {self.x: x})

    def train(self):
        self.session.run(self.grads, {self.x: X})


MODELS = {"torch": OnTorch, "keras": OnKeras, "session": InASession}
