"""Contents of pages, made by hand, so that no framework is needed."""

from dataclasses import dataclass

import amanda
from amanda_tools import Column, Place
from amanda_tools.charts import bars
from amanda_tools.execution import Execution, Kind, Tensors
from amanda_tools.html_report import Contents, Timeline
from amanda_tools.pictures import Pictured
from amanda_tools.results import Results
from amanda_tools.tables import table_of

MARKUP = "<img src=x onerror=alert(1)></script><script>hacked=1</script>"
ERRORS = {3: float("nan"), 4: float("-inf"), 5: -7.5e33}
_NOTHING = Tensors([], [])


@dataclass
class Layer:
    """What was found of a layer."""

    id: str
    source: str
    zeros: int
    error: float
    bytes_moved: int
    shape: list[int]


class Sparsity(Pictured[Layer], amanda.Tool):
    """A tool that has columns, a table, a text, a picture and rows."""

    row_type = Layer
    units = {"bytes_moved": "bytes"}

    def __init__(self, columns):
        super().__init__()
        self._columns = columns

    def columns(self):
        return self._columns

    def rows(self):
        return [
            Layer(f"layer {n}", f"train.py:{n}", n * 7 % 30, ERRORS.get(n, n / 3), n * 1024, [n])
            for n in range(30)
        ]

    def found(self):
        return f"30 layers of {MARKUP}"

    def charts(self):
        return [bars("Zeros by layer", {"zeros": {MARKUP: 3.0, "second": 1.0}})]

    def report(self):
        cells = [("one", "1.20 k", None), ("two", "900", "x"), ("three", "1.00 M", MARKUP)]
        return [table_of(("Layer", "Zeros", "Note"), cells), f"sparsity: {MARKUP}"]


def small():
    """A model of two blocks and a head, three steps of it, and names that are markup."""
    times = {
        Place("body.first/conv", "conv", "body.first"): (3e6, 1e6, 40),
        Place("body.second/conv", "conv", "body.second"): (1e6, 4e6, 60),
        Place("body/relu", "relu", "body"): (5e5, 0, 0),
        Place("head/linear", "linear", "head"): (2e6, 2e6, 2e9),
        Place(f"{MARKUP}/{MARKUP}", MARKUP, MARKUP): (1e5, 0, 1),
        Place("load", "load", "", "data"): (7e6, 0, 0),
    }
    columns = [
        Column("FLOPs", {place: flops for place, (_, _, flops) in times.items()}),
        Column(
            "Forward", {place: forward for place, (forward, _, _) in times.items()}, "nanoseconds"
        ),
        Column("Backward", {p: backward for p, (_, backward, _) in times.items()}, "nanoseconds"),
        Column("Count", dict.fromkeys(times, 3), detail=True),
    ]
    contents = contents_of(Sparsity(columns))
    contents.sources |= {"head/linear": "train.py:12", "body/relu": f"{MARKUP}.py:1"}
    timeline = Timeline("this run")
    now = 0
    for _ in range(3):
        for direction in ("forward", "backward"):
            for place, spent in times.items():
                duration = int(spent[direction == "backward"])
                if duration and place.purpose == "model":
                    allocated = (now % 7_000_000) * 100
                    timeline.add(execution(place, direction, now, duration, allocated))
                    now += duration
        now += 1_000_000
    contents.timelines.append(timeline)
    return contents


def many():
    """A model of 2,000 operators, and 100,000 executions of it."""
    places = [
        Place(f"layer.{n // 4}.{n % 4}/op", f"op{n % 9}", f"layer.{n // 4}.{n % 4}")
        for n in range(2000)
    ]
    columns = [
        Column(
            "Forward",
            {place: (n * 7919) % 1000 + 1 for n, place in enumerate(places)},
            "nanoseconds",
        )
    ]
    contents = contents_of(Sparsity(columns))
    timeline = Timeline("this run")
    for n in range(100_000):
        timeline.add(execution(places[n % 2000], "forward", n * 1000, 900))
    contents.timelines.append(timeline)
    return contents


def shares():
    """A model of which nothing is known but shares, of which there is no flame graph."""
    places = {Place(f"{name}/op", "op", name): 0.5 for name in ("first", "second")}
    return contents_of(Sparsity([Column("Density", places, "share")]))


def peak():
    """A run of 500 µs that has much memory for 20 ns, which are less than a pixel, at 230 µs."""
    timeline, place = Timeline("this run"), Place("op", "op", "")
    sizes = {0: 1, 229_980: 900, 229_990: 1000, 230_000: 1, 499_990: 1}
    for start, size in sizes.items():
        timeline.add(execution(place, "forward", start, 10, size))
    return Contents("train.py", timelines=[timeline])


def execution(place, direction, start, duration, allocated=None):
    """An execution of an operator."""
    kind = Kind(place, place, direction, None, _NOTHING, _NOTHING)
    return Execution(kind, 0, start, duration, duration, 0, allocated, None)


def contents_of(*tools):
    """What a page shows of tools."""
    results = Results(silent=True)
    results.show(tools, 0, "")
    assert not results.tools_failed
    contents = Contents(f"train.py {MARKUP}", [("Written", MARKUP)])
    contents.add(results.contributions)
    return contents
