"""The page in a real browser, Chromium without a window: driven through its debugging pipe, the page left as it is.

Without /usr/bin/chromium (Debian: apt-get install chromium) these tests are skipped.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goodness
from goodness.durable import append_line
from goodness.report.page import write_report
from goodness.report.watch import make_server
from tiny_runs import BLOBS, blobs_at_hand, shrunk

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).is_file(), reason=f"no browser at {CHROMIUM}: apt-get install chromium"),
]


class Browser:
    """One tab of a Chromium of its own, spoken to in its debugging protocol: NUL-ended JSON over two pipes."""

    def __init__(self, folder: Path) -> None:
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # The browser reads its third and writes to its fourth descriptor: keep ours out of the way of both.
        ends = [fcntl.fcntl(one, fcntl.F_DUPFD, 64) for one in (to_read, to_write)]

        def connect() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=connect,
            pass_fds=(3, 4),
        )
        for end in (to_read, to_write, *ends):
            os.close(end)
        self.buffer, self.asked = b"", 0
        self.events: list[dict[str, Any]] = []
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    session: str | None = None

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, wait for its answer; events that come in between are kept."""
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.asked:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            read = os.read(self.from_browser, 1 << 20)
            assert read, "the browser has gone"
            self.buffer += read
        raw, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(raw)

    def open(self, address: str) -> None:
        """Load a page; what earlier ones said is forgotten."""
        self.events.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 20) -> None:
        """Wait until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.1)

    def press(self, key: str, text: str = "") -> None:
        """A key as a keyboard sends it."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **more)

    def size(self, width: int, height: int = 900) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def screenshot(self, path: Path, *, whole: bool = False) -> bytes:
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        picture = base64.b64decode(found["data"])
        path.write_bytes(picture)
        return picture

    @property
    def complaints(self) -> list[str]:
        """Exceptions, console errors and warnings, and everything that the browser logs about the page."""
        found = []
        for event in self.events:
            method, said = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(said["exceptionDetails"]))
            elif (method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert")) or (
                method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning")
            ):
                found.append(str(said.get("args") or said["entry"]["text"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, data that lies in the page itself left out."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if not one["request"]["url"].startswith("data:")]

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.ask("Browser.close")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[goodness.Run]]:
    """Three short runs, the names of which are not in the order of their accuracies or rules."""
    folder = tmp_path_factory.mktemp("runs")
    settings = {**BLOBS, "data": "easy-blobs", "epochs": 4, "keep.evaluate_every": 1}
    with blobs_at_hand():
        yield [
            goodness.train(shrunk("demo", {**settings, "rule": rule}, blocks=3), out=folder / name, device="cpu")
            for name, rule in (("b", "lcff"), ("c", "local"), ("a", "gated"))
        ]


@pytest.fixture(scope="module")
def report(runs: list[goodness.Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(runs, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def opened(browser: Browser, report: Path) -> Browser:
    browser.size(1280)
    browser.scheme("light")
    browser.open(report.as_uri())
    return browser


CLICK = "document.querySelector({!r}).click()"
NAMES = "[...document.querySelectorAll('#summary tbody th')].map((cell) => cell.textContent)"


def test_the_page_opens_without_complaint_and_asks_for_nothing(opened: Browser, report: Path) -> None:
    opened.run("new Promise((done) => setTimeout(done, 300))")
    assert opened.complaints == []
    assert opened.requests == [report.as_uri()]


def test_a_complaint_would_be_heard(opened: Browser, tmp_path: Path) -> None:
    """The test above can fail: a page that throws, and one whose policy forbids its script."""
    (tmp_path / "bad.html").write_text("<script>nonsense()</script><img src='http://127.0.0.1:9/x.png'>")
    opened.open((tmp_path / "bad.html").as_uri())
    assert any("nonsense" in one for one in opened.complaints)
    assert "http://127.0.0.1:9/x.png" in opened.requests


@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_there_and_the_page_is_no_wider_than_the_screen(
    opened: Browser, width: int, tmp_path: Path
) -> None:
    opened.size(width)
    sizes = opened.run(
        "[...document.querySelectorAll('svg.plot')].map((one) => one.getBoundingClientRect())"
        ".map((box) => [box.width, box.height])"
    )
    assert len(sizes) == 2 + 3 * 8
    assert all(across > 250 and down > 150 for across, down in sizes)
    assert opened.run("document.documentElement.scrollWidth") == width
    bars = opened.run("[...document.querySelectorAll('.blocks .bar')].map((one) => one.getBoundingClientRect().height)")
    assert len(bars) == 9
    assert min(bars) > 30
    assert len(opened.screenshot(tmp_path / "page.png")) > 20_000


def test_a_click_on_a_header_sorts_and_another_turns_it_round(opened: Browser) -> None:
    assert opened.run(NAMES) == ["b", "c", "a"]
    opened.run(CLICK.format("#summary-run button"))
    assert opened.run(NAMES) == ["a", "b", "c"]
    assert opened.run("document.querySelector('#summary-run').getAttribute('aria-sort')") == "ascending"
    opened.run(CLICK.format("#summary-run button"))
    assert opened.run(NAMES) == ["c", "b", "a"]
    opened.run(CLICK.format("#summary-accuracy button"))
    values = opened.run("[...document.querySelectorAll('#summary tbody tr')].map((row) => +row.cells[4].dataset.value)")
    assert values == sorted(values)
    assert opened.run("document.querySelectorAll('#summary [aria-sort]').length") == 1


def test_tables_sort_from_the_keyboard(opened: Browser) -> None:
    opened.run("document.querySelector('#summary-run button').focus()")
    opened.press("Enter", "\r")
    assert opened.run(NAMES) == ["a", "b", "c"]


def test_a_legend_entry_hides_and_shows_its_series(opened: Browser) -> None:
    shown = (
        "[...document.querySelectorAll('#run-0-attenuation [data-series=block-1]')]"
        ".map((one) => getComputedStyle(one).display)"
    )
    assert opened.run(shown) == ["inline", "inline"]
    opened.run(CLICK.format("#run-0-attenuation-key-block-1"))
    assert opened.run(shown) == ["none", "none"]
    assert (
        opened.run("document.querySelector('#run-0-attenuation-key-block-1').getAttribute('aria-pressed')") == "false"
    )
    opened.run(CLICK.format("#run-0-attenuation-key-block-1"))
    assert opened.run(shown) == ["inline", "inline"]


TIP = "(() => { const tip = document.getElementById('tip'); return tip.hidden ? null : tip.textContent; })()"


def test_pointing_at_a_figure_tells_the_exact_number(opened: Browser, runs: list[goodness.Run]) -> None:
    """The last point of the truncation curve, found through the browser's own geometry."""
    opened.run("document.querySelector('#run-0-truncation-canvas').scrollIntoView({block: 'center'})")
    x, y = opened.run(
        "(() => { const plot = document.querySelector('#run-0-truncation svg.plot');"
        " const box = plot.getBoundingClientRect();"
        " const [x, y] = JSON.parse(plot.dataset.points)[2], scale = box.width / plot.viewBox.baseVal.width;"
        " return [box.x + x * scale, box.y + y * scale]; })()"
    )
    opened.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + 3, y=y - 3)
    assert opened.run(TIP) == f"3 blocks: {100 * runs[0].accuracy:.2f} %"
    opened.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert opened.run(TIP) is None


def test_arrow_keys_go_from_point_to_point(opened: Browser) -> None:
    opened.run("document.querySelector('#run-1-truncation-canvas').focus()")
    opened.press("ArrowRight")
    assert opened.run(TIP).startswith("1 block: ")
    opened.press("ArrowRight")
    assert opened.run(TIP).startswith("2 blocks: ")
    opened.press("Escape")
    assert opened.run(TIP) is None


def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened: Browser) -> None:
    opened.press("Tab")
    assert opened.run("document.activeElement.textContent") == "To the findings"
    assert opened.run("document.activeElement.getBoundingClientRect().height") > 10
    opened.press("Tab")
    assert opened.run("document.activeElement.closest('.card') !== null")
    assert opened.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


INK = "getComputedStyle(document.querySelector('svg.plot text')).fill"


def test_the_dark_page_is_dark_and_its_figures_are_bright(opened: Browser, tmp_path: Path) -> None:
    light = opened.run("getComputedStyle(document.body).backgroundColor"), opened.run(INK)
    opened.scheme("dark")
    assert opened.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert opened.run(INK) == "rgb(232, 234, 237)"
    assert light == ("rgb(251, 251, 250)", "rgb(27, 31, 36)")


def test_print_is_dark_on_white_even_where_the_screen_is_dark(opened: Browser) -> None:
    opened.scheme("dark", media="print")
    assert opened.run(INK) == "rgb(27, 31, 36)"
    assert opened.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.run("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert opened.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    pdf = base64.b64decode(opened.ask("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")


def test_the_live_page_takes_up_news_and_stays_where_the_reader_is(
    browser: Browser, runs: list[goodness.Run], tmp_path: Path
) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / "config.json").write_bytes((runs[0].path / "config.json").read_bytes())
    lines = runs[0].metrics
    append_line(place / "metrics.jsonl", lines[0])
    server = make_server(place, every=0.2)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        browser.size(1280, 500)
        browser.scheme("light")
        browser.open(server.url)
        assert "1 of 4 epochs" in browser.run("document.querySelector('main').textContent")
        browser.run(CLICK.format("#run-0-curves-key-block-1"))
        browser.run(CLICK.format("#run-0-curves-table summary"))
        browser.run("window.scrollTo(0, 400)")
        for line in lines[1:3]:
            append_line(place / "metrics.jsonl", line)
        browser.until("document.querySelector('main').textContent.includes('3 of 4 epochs')", 60)
        assert browser.run("window.scrollY") == 400
        assert browser.run("document.querySelector('#run-0-curves-table').open")
        assert (
            browser.run("document.querySelector('#run-0-curves-key-block-1').getAttribute('aria-pressed')") == "false"
        )
        hidden = "getComputedStyle(document.querySelector('#run-0-curves [data-series=block-1]')).display"
        assert browser.run(hidden) == "none"
        assert browser.complaints == []
        assert all(one.startswith(server.url) for one in browser.requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    browser.until("document.querySelector('#live').textContent.includes('does not answer')")
