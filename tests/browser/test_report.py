"""What a person does with a report: open it, sort, expand, hover, search and choose."""

from importlib import resources

import pytest
from reports import MARKUP
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

both_widths = pytest.mark.parametrize("width", ["wide", "narrow"])


def names(page):
    """Names of the rows of modules, as far as the tree is open."""
    return page.texts("#modules tbody .name")


def fill(page, frame):
    """The colour of a frame."""
    return page.script("getComputedStyle(arguments[0]).fill", frame)


class TestPage:
    @both_widths
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_is_accessible_and_as_wide_as_the_window(self, opened, width, scheme):
        page = opened(width=width, scheme=scheme)
        page.script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        axe = resources.files("axe_core_python") / "axe.min.js"
        page.browser.execute_script(axe.read_text("utf-8"))
        found = page.browser.execute_async_script(
            "const [done] = arguments; axe.run().then((found) => done(found.violations));"
        )
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        root = "document.documentElement"
        assert page.script(f"{root}.scrollWidth") == page.script(f"{root}.clientWidth")

    def test_is_light_or_dark_as_the_system_and_as_one_chooses(self, opened):
        def paper(page):
            return page.script("getComputedStyle(document.body).backgroundColor")

        assert paper(opened(scheme="light")) == "rgb(255, 255, 255)"
        page = opened(scheme="dark")
        dark = paper(page)
        assert dark != "rgb(255, 255, 255)"
        page.one("#theme").click()
        assert page.one("#theme").text == "Theme: light"
        assert paper(page) == "rgb(255, 255, 255)"
        page = opened(scheme="light")  # which is remembered
        page.one("#theme").click()
        assert paper(page) == dark

    @both_widths
    def test_leads_to_each_part(self, opened, width):
        page = opened(width=width)
        links = page.all("nav a")
        assert [link.text for link in links] == [
            *("Modules", "Flame graph", "Operators", "Types", "Timeline", "Sparsity")
        ]
        links[4].click()
        top = page.script("document.getElementById('timeline').getBoundingClientRect().top")
        assert 0 <= top < 200

    def test_has_names_with_markup_as_text(self, opened):
        page = opened()
        page.button("#modules", "Expand all").click()
        assert MARKUP in page.one("h1").text
        assert any("<img src=x onerror" in name for name in names(page))
        assert MARKUP in page.texts("#types tbody th")
        assert page.script("window.hacked") is None
        assert page.script("document.images.length") == 0

    def test_is_whole_without_a_chart(self, opened):
        page = opened("shares")
        assert page.texts("nav a") == ["Modules", "Operators", "Types", "Sparsity"]
        assert names(page)[0] == "total"
        assert len(page.texts("#tool-1 .parts tbody tr")) == 3

    def test_shows_totals(self, opened):
        page = opened()
        tiles = dict(zip(page.texts("#totals dt"), page.texts("#totals dd"), strict=True))
        assert tiles["FLOPs"] == "2.00 G"
        assert tiles["Forward time"] == "13.6 ms"
        assert tiles["Operators"] == "6"


class TestModules:
    @both_widths
    def test_sort_by_a_heading_among_those_beside_them(self, opened, width):
        page = opened(width=width)
        came = names(page)
        assert came[0] == "total"
        heading = page.heading("#modules", "Forward")
        assert heading.get_attribute("aria-sort") == "descending"
        assert [n for n in names(page) if n in ("(data loading)", "body", "head")] == [
            *("(data loading)", "body", "head")
        ]
        heading = page.heading("#modules", "Forward")
        assert heading.get_attribute("aria-sort") == "ascending"
        assert [n for n in names(page) if n in ("(data loading)", "body", "head")] == [
            *("head", "body", "(data loading)")
        ]
        assert page.heading("#modules", "Forward").get_attribute("aria-sort") is None
        assert names(page) == came

    def test_have_the_sum_of_what_is_in_them(self, opened):
        page = opened()
        sums = dict(zip(names(page), page.column("#modules", "Backward"), strict=True))
        assert sums["total"] == "7.00 ms"
        assert sums["body"] == "5.00 ms"

    def test_expand_and_collapse_by_mouse(self, opened):
        page = opened()
        page.button("#modules", "Collapse all").click()
        assert "second" not in names(page)
        row = next(row for row in page.all("#modules tbody tr") if "body" in row.text)
        assert row.get_attribute("aria-expanded") == "false"
        row.find_element(By.CSS_SELECTOR, ".name").click()
        assert "second" in names(page)
        page.button("#modules", "Expand all").click()
        assert "linear" in names(page)

    def test_are_walked_by_keyboard(self, opened):
        page = opened()
        page.button("#modules", "Collapse all").send_keys(Keys.TAB, Keys.TAB)
        while page.focused().tag_name == "button":  # the headings
            page.press(Keys.TAB)
        assert page.focused().text.startswith("total")
        page.press(Keys.ARROW_DOWN)
        assert page.focused().get_attribute("aria-expanded") == "true"
        page.press(Keys.ARROW_LEFT)
        assert page.focused().get_attribute("aria-expanded") == "false"
        assert page.focused().text.startswith("body")
        page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        assert page.focused().text.startswith("first")
        assert page.focused().get_attribute("aria-level") == "3"
        page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        assert page.focused().text.startswith("body")
        page.press(Keys.END, Keys.HOME)
        assert page.focused().text.startswith("total")

    def test_are_searched_with_what_they_are_in(self, opened):
        page = opened()
        assert page.search("#modules", "relu") == "1 found"
        assert names(page) == ["total", "body", "(own operators)", "relu"]
        page.stop_searching("#modules")
        assert "head" in names(page)


class TestFlameGraph:
    @both_widths
    def test_is_as_wide_as_the_numbers_are_large_forward_and_backward(self, opened, width):
        page = opened(width=width)
        assert page.texts("#flame h3") == ["Forward 13.6 ms", "Backward 7.00 ms"]
        frames = {label: frame.rect for label, frame in page.frames(2).items()}
        whole = frames["total, 7.00 ms, 100.0%"]["width"]
        assert whole == pytest.approx(page.all("#flame .flame")[1].rect["width"], abs=2)
        assert frames["body, 5.00 ms, 71.4%"]["width"] == pytest.approx(whole * 5 / 7, abs=2)
        assert frames["second, 4.00 ms, 57.1%"]["y"] > frames["body, 5.00 ms, 71.4%"]["y"]

    def test_tells_of_a_frame_under_the_pointer(self, opened):
        page = opened()
        page.hover(page.frame("linear"))
        tip = page.tip()
        assert "head.linear" in tip
        assert "train.py:12" in tip
        assert "2.00 G" in tip

    def test_zooms_in_by_a_click_and_out_by_escape(self, opened):
        page = opened()
        page.frame("body").click()
        assert "4.50 ms of 13.6 ms, in body" in page.texts("#flame h3")[0]
        assert page.frame("body").rect["width"] == page.frame("total").rect["width"]
        assert page.focused().accessible_name == "Forward"
        page.press(Keys.ESCAPE)
        assert page.texts("#flame h3")[0] == "Forward 13.6 ms"
        assert page.frame("body").rect["width"] < page.frame("total").rect["width"] / 2

    def test_is_walked_by_keyboard(self, opened):
        page = opened()
        page.frame("body").click()
        page.settle("#flame")
        page.press(Keys.ARROW_UP, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
        page.press(Keys.ESCAPE)
        page.settle("#flame")
        page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
        assert page.spoken() == "head, 2.00 ms, 14.7%, 1 inside"
        page.settle("#flame")
        assert "2.00 ms" in page.tip()
        assert page.frame("head").get_attribute("stroke")
        assert not page.frame("body").get_attribute("stroke")
        page.press(Keys.ENTER)
        assert "in head" in page.texts("#flame h3")[0]

    def test_shows_other_numbers(self, opened):
        page = opened()
        page.choose("#flame select", "FLOPs")
        assert page.texts("#flame h3") == ["FLOPs 2.00 G"]

    def test_is_searched(self, opened):
        page = opened()
        before = {label: fill(page, frame) for label, frame in page.frames().items()}
        assert page.search("#flame", "conv") == "29.4% matches"
        after = page.frames()
        changed = [label for label in before if fill(page, after[label]) != before[label]]
        assert {label.partition(",")[0] for label in changed} == {"conv"}
        assert after[changed[0]].get_attribute("opacity") in (None, "1")
        assert page.frame("relu").get_attribute("opacity") == "0.35"

    def test_is_light_or_dark_as_the_page(self, opened):
        page = opened(scheme="light")
        light = fill(page, page.frame("body"))
        page.one("#theme").click()
        page.one("#theme").click()
        dark = fill(page, page.frame("body"))
        assert dark != light
        assert fill(opened(scheme="dark"), page.frame("body")) == dark


class TestOperators:
    def test_are_ranked_by_time_with_their_lines(self, opened):
        page = opened()
        rows = page.rows("#slowest")
        assert rows[0].startswith("load")
        assert "train.py:12" in next(row for row in rows if row.startswith("head/linear"))
        assert f"{MARKUP}.py:1" in next(row for row in rows if row.startswith("body/relu"))

    def test_are_added_up_by_type(self, opened):
        page = opened()
        page.heading("#types", "Backward")
        assert page.rows("#types")[:2] == ["conv", "linear"]
        assert page.column("#types", "Backward")[:2] == ["5.00 ms", "2.00 ms"]

    def test_leave_details_out_where_there_is_no_room(self, opened):
        assert "Count" in opened(width="wide").texts("#slowest thead th")
        assert "Count" not in opened(width="narrow").texts("#slowest thead th")


class TestTimeline:
    def test_has_steps_to_choose_from_by_keyboard(self, opened):
        page = opened()
        assert page.one("#timeline output").text == "all 3"
        page.one("#timeline-step").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        said = "2 of 3: 13.6 ms (6.60 ms forward, 7.00 ms backward)"
        assert page.one("#timeline output").text == said
        assert page.one("#timeline-step").get_attribute("aria-valuetext") == said

    def test_has_peaks_of_memory_that_last_less_than_a_pixel(self, opened):
        page = opened("peak")
        page.settle("#timeline")
        canvas = page.one("#timeline .lanes canvas")
        pixel, high = 1 / canvas.size["width"], 30
        assert any(page.ink(canvas, 0.46 + by * pixel, high) for by in (-1, 0, 1))
        assert not page.ink(canvas, 0.46 - 9 * pixel, high)
        assert not page.ink(canvas, 0.46 + 9 * pixel, high)

    def test_tells_of_an_execution_under_the_pointer(self, opened):
        page = opened()
        canvas = page.one("#timeline .lanes")
        page.one("#timeline-step").send_keys(Keys.ARROW_RIGHT)
        page.settle("#timeline")
        lane = 110  # below the curve of the memory
        page.hover(canvas, -canvas.size["width"] // 2 + 40, lane - canvas.size["height"] // 2)
        assert "body.first/conv" in page.tip()
        assert "3.00 ms" in page.tip()

    def test_is_chosen_from_zoomed_and_moved_by_mouse(self, opened):
        page = opened()
        page.settle("#timeline")
        canvas = page.one("#timeline .lanes")
        left, lane = -canvas.size["width"] // 2, 110 - canvas.size["height"] // 2
        page.hover(canvas, left + 40, lane)
        ActionChains(page.browser).click().perform()
        assert "body.first/conv" in page.one("#timeline .chosen").text
        ActionChains(page.browser).double_click().perform()
        page.settle("#timeline")
        page.hover(canvas, left + 150, lane)
        assert "body.first/conv" in page.tip()  # which is four times as wide now
        ActionChains(page.browser).click_and_hold().move_by_offset(-100, 0).release().perform()
        page.settle("#timeline")
        page.hover(canvas, left + 150, lane)
        assert "body.second/conv" in page.tip()
        with_ctrl = ActionChains(page.browser).key_down(Keys.CONTROL)
        with_ctrl.scroll_from_origin(ScrollOrigin.from_element(canvas), 0, 400).perform()
        ActionChains(page.browser).key_up(Keys.CONTROL).perform()
        page.settle("#timeline")
        page.hover(canvas, left + 150, lane)
        assert "body.second/conv" not in (page.tip() or "")  # which is not there any more
        bars = page.one("#timeline .strip")
        page.hover(bars, bars.size["width"] // 2 - 20)
        ActionChains(page.browser).click().perform()
        assert page.one("#timeline output").text.startswith("3 of 3")

    @both_widths
    def test_is_walked_by_keyboard(self, opened, width):
        page = opened(width=width)
        page.script("arguments[0].focus()", page.one("#timeline .lanes"))
        page.press(Keys.ARROW_RIGHT)
        assert "body.first/conv" in page.one("#timeline .chosen").text
        page.press(Keys.ARROW_RIGHT, "+", "-")
        page.press(Keys.ARROW_RIGHT, holding=Keys.SHIFT)
        assert "body.second/conv" in page.one("#timeline .chosen").text
        page.press(Keys.ARROW_DOWN)
        assert "backward" in page.one("#timeline .chosen").text
        page.press(Keys.END)
        assert "head/linear" in page.one("#timeline .chosen").text


class TestTool:
    def test_has_a_table_that_sorts_by_what_its_numbers_mean(self, opened):
        page = opened()
        page.heading("#tool-1 .parts", "Zeros")
        assert page.column("#tool-1 .parts", "Zeros") == ["1.00 M", "1.20 k", "900"]
        page.heading("#tool-1 .parts", "Note")
        assert page.column("#tool-1 .parts", "Note")[-1] == ""  # what there is none of comes last

    def test_has_its_text_and_its_picture(self, opened):
        page = opened()
        assert f"sparsity: {MARKUP}" in page.texts("#tool-1 .said")
        inside = "document.querySelector('#tool-1 .picture .scrolls > div').shadowRoot"
        assert MARKUP in page.script(f"{inside}.textContent")
        assert page.script(f"{inside}.querySelectorAll('rect').length") == 2

    def test_has_all_its_rows_to_open_sort_and_search(self, opened):
        page = opened()
        section = "#tool-1 > details:last-child"
        page.open(section)
        assert len(page.rows(section)) == 12
        page.heading(section, "zeros")
        assert page.column(section, "zeros")[0] == "29"
        assert page.column(section, "bytes moved")[0] == "17.0 KiB"
        page.heading(section, "error")
        assert page.column(section, "error")[:2] == ["9.667", "9.333"]
        page.heading(section, "error")
        assert page.column(section, "error")[:2] == ["-7.5e+33", "0"]
        page.button(section, "Show 18 more of 30").click()
        assert page.column(section, "error")[-2:] == ["nan", "-inf"]
        assert len(page.rows(section)) == 30
        assert page.search(section, "train.py:2") == "11 found"


class TestOfMany:
    def test_opens_and_sorts(self, opened, pages):
        assert pages["many"].stat().st_size < 8_000_000
        page = opened("many")
        assert "100,000 executions" in page.one("#timeline").text
        page.button("#modules", "Expand all").click()
        page.heading("#modules", "Forward")
        assert len(page.script("[...document.querySelectorAll('#modules tbody tr')]")) == 500
        page.button("#modules", "Show 500 more rows").click()
        page.heading("#slowest", "Operator")
        assert page.rows("#slowest")[0] == "layer.0.0/op"
        page.one("#timeline-step").send_keys(Keys.END)
        assert page.one("#timeline output").text.startswith("50 of 50")
