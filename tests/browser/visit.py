"""What a person does on a page, and sees there."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

PATIENCE = 100  # seconds; for a slow machine
# What is seen of a selection; asked of the page at once, for each question takes milliseconds.
SEEN = """((selector) => [...document.querySelectorAll(selector)].filter((each) =>
    each.checkVisibility({ opacityProperty: true, visibilityProperty: true })))"""


class Visit:
    """A page that is open."""

    def __init__(self, browser):
        self.browser = browser
        browser.set_script_timeout(PATIENCE)

    # What is seen

    def all(self, selector):
        """The elements that can be seen."""
        return self.script(f"{SEEN}(arguments[0])", selector)

    def one(self, selector):
        """The only element."""
        (element,) = self.all(selector)
        return element

    def texts(self, selector):
        """The texts of elements."""
        return self.script(f"{SEEN}(arguments[0]).map((each) => each.innerText.trim())", selector)

    def said(self, selector):
        """The elements with their texts."""
        return zip(self.all(selector), self.texts(selector), strict=True)

    def script(self, text, *arguments):
        """What a script gives."""
        return self.browser.execute_script(f"return {text}", *arguments)

    def rows(self, section):
        """Names of the rows of a table, the first column."""
        return self.texts(f"{section} tbody tr > th")

    def column(self, section, title):
        """The cells of a column."""
        at = self.texts(f"{section} thead th").index(title)
        cell = "(row) => row.querySelectorAll('th, td')[arguments[1]].innerText.trim()"
        return self.script(f"{SEEN}(arguments[0]).map({cell})", f"{section} tbody tr", at)

    def focused(self):
        """The element that the keyboard talks to."""
        return self.browser.switch_to.active_element

    def tip(self):
        """What is shown beside the pointer; None if nothing is."""
        shown = self.all("#tip")
        return shown[0].text if shown else None

    def spoken(self):
        """What was said last to who cannot see the page."""
        return self.script("document.getElementById('spoken').textContent")

    def frames(self, panel=1):
        """The frames of a flame graph by their names, of which the last of each counts."""
        self.settle("#flame")
        frames = f"#flame .panel:nth-child({panel}) [aria-roledescription='rect mark']"
        labelled = "(each) => [each.getAttribute('aria-label'), each]"
        return dict(self.script(f"{SEEN}(arguments[0]).map({labelled})", frames))

    def frame(self, name):
        """The frame of a name in the first flame graph."""
        return next(f for label, f in self.frames().items() if label.startswith(f"{name}, "))

    def ink(self, canvas, x, y):
        """How opaque a pixel of a canvas is, from 0 to 255; x is a share of its width."""
        return self.browser.execute_script(
            "const [at, x, y] = arguments; const one = new OffscreenCanvas(1, 1).getContext('2d');"
            "one.drawImage(at, -Math.floor(x * at.width), -y);"
            "return one.getImageData(0, 0, 1, 1).data[3];",
            *(canvas, x, y),
        )

    def settle(self, selector):
        """Wait until a chart is drawn, and stays as it is."""
        self.browser.execute_async_script(
            "const [at, done] = arguments; let last = '';"
            "const pixels = () => [...at.querySelectorAll('canvas')].map((c) => c.toDataURL());"
            "const look = () => { const now = at.innerHTML + pixels();"
            "  if (now === last && at.querySelector('svg, canvas')) done();"
            "  else { last = now; setTimeout(drawn, 80); } };"
            "const drawn = () => requestAnimationFrame(() => requestAnimationFrame(look)); look();",
            self.one(selector),
        )

    # What is done

    def press(self, *keys, holding=None):
        """Press keys where the focus is, one after the other."""
        actions = ActionChains(self.browser)
        if holding is not None:
            actions.key_down(holding)
        actions.send_keys(*keys)
        if holding is not None:
            actions.key_up(holding)
        actions.perform()

    def heading(self, section, title):
        """Click a heading; its cell."""
        for button, text in self.said(f"{section} thead button"):
            if text == title:
                button.click()
                break
        else:
            raise AssertionError(f"{title} is not among the headings")
        return next(th for th, text in self.said(f"{section} thead th") if text == title)

    def button(self, section, text):
        """The button of a section that says so."""
        return next(b for b, said in self.said(f"{section} button") if said.startswith(text))

    def search(self, section, text):
        """Search, and wait until that is done; its count."""
        field = self.one(f"{section} input[type=search]")
        field.clear()
        field.send_keys(text)
        count = self.browser.find_element(By.CSS_SELECTOR, f"{section} .count")
        WebDriverWait(self.browser, PATIENCE).until(lambda _: bool(count.text) == bool(text))
        return count.text

    def stop_searching(self, section):
        """Empty the field of a search."""
        field = self.one(f"{section} input[type=search]")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.BACKSPACE)
        count = self.browser.find_element(By.CSS_SELECTOR, f"{section} .count")
        WebDriverWait(self.browser, PATIENCE).until(lambda _: not count.text)

    def open(self, details):
        """Open what is closed, and wait for the table in it."""
        self.one(f"{details} > summary").click()
        WebDriverWait(self.browser, PATIENCE).until(lambda _: self.all(f"{details} tbody tr"))

    def hover(self, element, x=0, y=0):
        """Move the pointer to an element, or so far from its middle."""
        self.browser.execute_async_script(  # until what was drawn has been scrolled
            "const [at, done] = arguments; at.scrollIntoView({ block: 'center' });"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));",
            element,
        )
        ActionChains(self.browser).move_to_element_with_offset(element, x, y).perform()

    def choose(self, selector, text):
        """Choose one of several."""
        Select(self.one(selector)).select_by_visible_text(text)
