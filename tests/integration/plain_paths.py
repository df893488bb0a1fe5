"""Effective paths by plain loops, for one small net, and that net on each framework.

x -> convolution -> normalization -> ReLU -> r
r -> convolution -> ReLU, added to r -> maximum of 2 x 2 -> p
p and 2 p, concatenated -> mean over space -> linear
"""

import numpy as np

RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((6, 2, 6, 6)).astype(np.float32)
W1 = RANDOM.standard_normal((3, 2, 3, 3)).astype(np.float32)
W2 = RANDOM.standard_normal((3, 3, 3, 3)).astype(np.float32)
GAMMA, BETA, MEAN = (RANDOM.standard_normal(3).astype(np.float32) for _ in range(3))
VARIANCE = RANDOM.random(3).astype(np.float32) + 0.5
EPSILON = 1e-3
WL = RANDOM.standard_normal((4, 6)).astype(np.float32)
BL = RANDOM.standard_normal(4).astype(np.float32)


def carrying(addends, share):
    """Indices of the fewest addends whose sum reaches the share."""
    total = float(sum(addends))
    sign = (total > 0) - (total < 0)
    order = sorted(range(len(addends)), key=lambda i: -addends[i] * sign)
    chosen, reached = [], 0.0
    while total and reached < share * abs(total) * (1 - 1e-12):
        reached += addends[order[len(chosen)]] * sign
        chosen.append(order[len(chosen)])
    return chosen


def around(x, weight):
    """For each output of a convolution with padding: its addends, and where they come from."""
    addends, places = {}, {}
    outputs, channels, height, width = weight.shape
    for o, i, j in np.ndindex(outputs, *x.shape[1:]):
        addends[o, i, j], places[o, i, j] = [], []
        for c, a, b in np.ndindex(channels, height, width):
            u, v = i + a - 1, j + b - 1
            inside = 0 <= u < x.shape[1] and 0 <= v < x.shape[2]
            addends[o, i, j].append(float(x[c, u, v]) * float(weight[o, c, a, b]) if inside else 0)
            places[o, i, j].append((c, u, v))
    return addends, places


def sums(addends, x):
    return np.array([sum(addends[at]) for at in np.ndindex(x)], np.float32).reshape(x)


def path(x, share):
    """The predicted class of an example, and for each layer the pairs (output, addend) on it."""
    addends1, _ = around(x, W1)
    shape = (3, 6, 6)
    scale = GAMMA / np.sqrt(VARIANCE + EPSILON)
    normal = (sums(addends1, shape) - MEAN[:, None, None]) * scale[:, None, None]
    r = np.maximum(normal + BETA[:, None, None], 0)
    addends2, places2 = around(r, W2)
    r2 = np.maximum(sums(addends2, shape), 0)
    s = r + r2
    p = s.reshape(3, 3, 2, 3, 2).max(axis=(2, 4))
    both = np.concatenate([p, p * 2])
    features = both.mean(axis=(1, 2))
    scores = WL @ features + BL
    label = int(scores.argmax())
    found = {name: set() for name in ("conv1", "conv2", "add", "pool", "mean", "linear")}

    through = set()  # elements of p
    for k in carrying([float(WL[label, k]) * float(features[k]) for k in range(6)], share):
        found["linear"].add((label, k))
        cells = list(np.ndindex(3, 3))
        for n in carrying([float(both[(k, *cell)]) for cell in cells], share):
            found["mean"].add((k, n))
            through.add((k % 3, *cells[n]))
    residual, convolved = set(), set()
    for c, i, j in through:
        window = [(c, 2 * i + a, 2 * j + b) for a in range(2) for b in range(2)]
        best = max(range(4), key=lambda n: (s[window[n]], -n))
        found["pool"].add(((c, i, j), best))
        at = window[best]
        for side in carrying([float(r[at]), float(r2[at])], share):
            found["add"].add((at, side))
            (residual, convolved)[side].add(at)
    for at in convolved:
        for k in carrying(addends2[at], share):
            found["conv2"].add((at, k))
            residual.add(places2[at][k])
    for at in residual:
        found["conv1"].update((at, k) for k in carrying(addends1[at], share))
    return label, found


SHAPES = {  # of the outputs, and how many addends each has
    "conv1": ((3, 6, 6), 18),
    "conv2": ((3, 6, 6), 27),
    "add": ((3, 6, 6), 2),
    "pool": ((3, 3, 3), 4),
    "mean": ((6,), 9),
    "linear": ((4,), 6),
}


def flags(name, pairs):
    """Pairs (output, addend) as an array of flags."""
    shape, count = SHAPES[name]
    flagged = np.zeros((*shape, count), bool)
    for output, addend in pairs:
        flagged[(*output, addend) if isinstance(output, tuple) else (output, addend)] = True
    return flagged.ravel()
