"""The tables: by module and by operator type, of whatever the tools found."""

import pytest
from amanda_tools import Column, by_module, by_type, columns_of
from amanda_tools.place import Model, Place
from amanda_tools.report import count, nanoseconds, share, size
from rich.console import Console


def column(title, unit="count", detail=False, /, **values):
    """``values`` by operator id, with ``__`` for the slash and ``_`` for the dot."""
    by_place = {}
    for key, value in values.items():
        scope, _, type = key.rpartition("__")
        by_place[Place(key, type, scope.replace("_", "."))] = value
    return Column(title, by_place, unit, detail)


def lines(table, width=100):
    """The table as text: labels with their indent, and cells."""
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(table)
    shown = [line.rstrip() for line in capture.get().splitlines()]
    return [line[1:] for line in shown if line.strip() and "──" not in line]


def labels_and_numbers(table):
    """The rows of a table with one column of whole numbers."""
    split = (line.rsplit(maxsplit=1) for line in lines(table)[1:])
    return [(label.rstrip(), number) for label, number in split]


class TestByModule:
    def test_a_module_has_the_sum_of_what_is_in_it(self):
        table = by_module([column("N", a_b__conv=1, a_b__relu=2, a_c__conv=10, d__conv=100)])
        assert labels_and_numbers(table) == [
            ("total", "113"),
            ("  a", "13"),
            ("    b", "3"),
            ("    c", "10"),
            ("  d", "100"),
        ]

    def test_what_a_module_does_itself_is_a_row_beside_those_in_it(self):
        table = by_module([column("N", a_b__conv=1, a__add=2, sum=4)])
        assert labels_and_numbers(table) == [
            ("total", "7"),
            ("  a", "3"),
            ("    b", "1"),
            ("    (own operators)", "2"),
            ("  (own operators)", "4"),
        ]

    def test_models_have_rows_that_are_no_level_where_modules_do_not_tell_them_apart(self):
        one, other, bare = Model(1, "Net"), Model(2, "Net"), Model(3, "Linear")
        values = {
            Place("a.b/conv", "conv", "a.b", model=one): 1,
            Place("a.c/conv", "conv", "a.c", model=one): 2,
            Place("a.b/conv@2", "conv", "a.b", model=other): 10,
            Place("d/conv", "conv", "d", model=other): 20,
            Place("linear", "linear", "", model=bare): 200,
            Place("add", "add", ""): 400,
        }
        assert labels_and_numbers(by_module([Column("N", values)], depth=1)) == [
            ("total", "633"),
            ("  Net.a", "3"),
            ("    b", "1"),
            ("    c", "2"),
            ("  Net#2", "30"),
            ("    a.b", "10"),
            ("    d", "20"),
            ("  Linear", "200"),
            ("  (own operators)", "400"),
        ]

    @pytest.mark.parametrize("other", ["b", "c.a"])
    def test_models_have_no_rows_where_modules_tell_them_apart(self, other):
        values = {
            Place("a/conv", "conv", "a", model=Model(1, "Net")): 1,
            Place(f"{other}/conv", "conv", other, model=Model(2, "Net")): 10,
        }
        assert labels_and_numbers(by_module([Column("N", values)])) == [
            ("total", "11"),
            ("  a", "1"),
            (f"  {other}", "10"),
        ]

    def test_depth_limits_the_levels(self):
        columns = [column("N", a_b_c__conv=1, a_b_d__conv=2, a_e__conv=4, f__conv=8)]
        shown = [
            [line.split()[0] for line in lines(by_module(columns, depth))[1:]] for depth in range(4)
        ]
        assert shown == [
            ["total"],
            ["total", "a", "f"],
            ["total", "a", "b", "e", "f"],
            ["total", "a", "b", "c", "d", "e", "f"],
        ]

    def test_a_module_around_the_whole_model_is_no_level(self):
        columns = [column("N", base_model_head__conv=1, base_model_h_0__conv=2, loss=4)]
        shown = [
            [line.split()[0] for line in lines(by_module(columns, depth))[1:]] for depth in range(3)
        ]
        assert shown == [
            ["total"],
            ["total", "base.model", "head", "h.0", "(own"],
            ["total", "base.model", "head", "h.0", "(own"],
        ]

    def test_loading_of_data_and_initialization_stand_apart(self):
        values = {
            Place("stack", "stack", "", "data"): 1,
            Place("a/conv", "conv", "a"): 10,
            Place("a/uniform_", "uniform_", "a", "initialization"): 100,
            Place("SGD/add_", "add_", "SGD", "optimizer"): 200,
        }
        assert labels_and_numbers(by_module([Column("N", values)])) == [
            ("total", "311"),
            ("  a", "10"),
            ("  SGD", "200"),
            ("  (data loading)", "1"),
            ("  (initialization)", "100"),
        ]

    def test_a_module_with_one_child_alone_shares_its_row(self):
        table = by_module([column("N", encoder_layer_0__conv=1, encoder_layer_1__conv=2)])
        assert labels_and_numbers(table) == [
            ("total", "3"),
            ("  encoder.layer", "3"),
            ("    0", "1"),
            ("    1", "2"),
        ]

    def test_many_modules_side_by_side_are_not_all_shown(self):
        values = {f"layer_{number}__conv": 1 for number in range(48)}
        shown = lines(by_module([column("N", **values)]))
        assert len(shown) < 25
        assert shown[-1].split() == ["33", "more", "33"]

    def test_columns_of_different_tools_meet_at_the_operator(self):
        table = by_module([column("N", a__conv=1), column("Time", "nanoseconds", a__conv=2000)])
        assert lines(table)[-1].split() == ["a", "1", "2.00", "µs"]

    def test_what_a_tool_does_not_know_is_left_blank(self):
        table = by_module([column("N", a__conv=1), column("M", b__conv=2)])
        assert [line.split() for line in lines(table)[2:]] == [["a", "1"], ["b", "2"]]


class TestByType:
    def test_the_largest_share_comes_first(self):
        columns = [
            column("N", a__conv=9, a__relu=1, a__add=5),
            column("Share", "share", a__conv=0.2, a__relu=0.5, a__add=0.3),
        ]
        assert [line.split()[0] for line in lines(by_type(columns))[1:]] == ["relu", "add", "conv"]

    def test_without_a_share_the_largest_number_does(self):
        columns = [column("N", a__conv=9, a__relu=1, a__add=5)]
        assert [line.split()[0] for line in lines(by_type(columns))[1:]] == ["conv", "add", "relu"]

    def test_operators_of_a_type_are_added(self):
        table = by_type([column("N", a__conv=9, b__conv=1, a__relu=2)])
        assert [line.split() for line in lines(table)] == [
            ["Type", "N"],
            ["conv", "10"],
            ["relu", "2"],
        ]

    def test_executions_that_several_tools_counted_are_told_once_and_last(self):
        counts = [column("Count", a__conv=3, b__conv=4), column("Count", a__conv=3, a__relu=5)]
        columns = [counts[0], column("N", a__conv=9), counts[1]]
        for table in (by_type(columns), by_module(columns)):
            assert lines(table)[0].split()[1:] == ["N", "Count"]
        assert [line.split() for line in lines(by_type(columns))[1:]] == [
            ["conv", "9", "7"],
            ["relu", "5"],
        ]

    def test_nothing_is_an_empty_table(self):
        assert len(lines(by_type([]))) == 1

    def test_the_rest_is_one_row(self):
        values = {f"a__op{number}": 100 - number for number in range(12)}
        shown = lines(by_type([column("N", **values)], limit=10))
        assert shown[-1].split() == ["2", "other", "types", "179"]


class TestWidth:
    COLUMNS = [
        column("FLOPs", encoder_attention_self_query__linear=123_000),
        column("Backward FLOPs", encoder_attention_self_query__linear=246_000),
        column("Moved", "bytes", True, encoder_attention_self_query__linear=5000),
    ]

    def test_all_columns_where_there_is_room(self):
        assert "Moved" in lines(by_module(self.COLUMNS), 80)[1]

    def test_columns_of_details_go_first(self):
        shown = lines(by_module(self.COLUMNS), 50)
        assert "Moved" not in shown[1]
        assert shown[-1].split()[1:] == ["123", "k", "246", "k"]

    @pytest.mark.parametrize("width", [30, 40, 80])
    def test_numbers_are_never_cut(self, width):
        for line in lines(by_module(self.COLUMNS), width)[2:]:
            assert line.split()[1:5] == ["123", "k", "246", "k"]
            assert len(line) < width


class TestNumbers:
    @pytest.mark.parametrize(
        ("number", "text"),
        [
            (0, "0"),
            (7, "7"),
            (999, "999"),
            (1000, "1.00 k"),
            (999_499, "999 k"),
            (999_999, "1.00 M"),
            (12_345, "12.3 k"),
            (123_456, "123 k"),
            (2.5e9, "2.50 G"),
            (-4200, "-4.20 k"),
        ],
    )
    def test_counts(self, number, text):
        assert count(number) == text

    def test_sizes(self):
        assert [size(n) for n in (512, 2048, 3 * 2**30)] == ["512 B", "2.00 KiB", "3.00 GiB"]

    def test_times(self):
        assert [nanoseconds(n) for n in (5, 1500, 25e6, 4e12)] == [
            "5 ns",
            "1.50 µs",
            "25.0 ms",
            "4000 s",
        ]

    def test_shares(self):
        assert share(0.1234) == "12.3%"


def test_columns_come_from_any_object_that_has_them():
    class Mine:
        def columns(self):
            return [Column("N", {})]

    assert columns_of([object(), Mine()]) == [Column("N", {})]
