"""Charts that tools draw of what they found."""

import re

from amanda_tools.charts import bars, page


def test_bars_are_as_long_as_the_numbers_with_these_beside_them():
    _, _, drawn = bars("Zeros", {"zeros": {"first": 2000, "second": 500.5}})
    first, second = (float(width) for width in re.findall(r'width="([\d.]+)"', "".join(drawn)))
    assert second == round(first * 500.5 / 2000, 1)
    assert "zeros: 2,000" in "".join(drawn)
    assert "zeros: 500" in "".join(drawn)


def test_a_picture_is_wide_enough_for_its_longest_label():
    svg = page(bars("Elements", {"a name that is long": {"conv": 3361}}))
    width = float(re.search(r'width="(\d+)"', svg)[1])
    start = float(re.findall(r'<text x="([\d.]+)"', svg)[-1])
    assert width - start > 6 * len("a name that is long: 3,361")
