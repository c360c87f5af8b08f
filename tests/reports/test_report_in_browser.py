"""The report in a real browser: what a person operates, against the numbers of the trace."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr
from report_samples import LAYERS, MANIFEST, WORDS, make_images, make_trace

from denoscope.reports import ReportImages, render_report, summaries

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-background-networking"]
        )
        yield launched
        launched.close()


@dataclass
class Visit:
    """A page and what it did that a report must not do."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return self.page.inner_text(f"#{name}")

    def number(self, name: str) -> float:
        return float(self.text(name).replace("−", "-"))

    def go(self, step: int) -> None:
        self.page.locator("#step").evaluate(
            "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
        )


def visit(browser: "Browser", path: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> Visit:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    result = Visit(context.new_page())
    # The reading back of pixels that Chromium remarks on is done by these tests, not by the page.
    result.page.on(
        "console",
        lambda message: None if "willReadFrequently" in message.text else result.complaints.append(message.text),
    )
    result.page.on("pageerror", lambda error: result.complaints.append(str(error)))
    result.page.on("dialog", lambda dialog: result.complaints.append(f"dialog {dialog.message}"))
    result.page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:")) else result.complaints.append(request.url),
    )
    result.page.goto(path.as_uri())
    result.page.wait_for_selector("html[data-ready=yes]", timeout=120_000)
    return result


@pytest.fixture(scope="module")
def trace() -> xr.Dataset:
    return make_trace(zero_snr=True, hole=20)


@pytest.fixture(scope="module")
def report(trace: xr.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    path = folder / "report.html"
    path.write_text(render_report(trace, MANIFEST, make_images(folder)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(browser: "Browser", report: Path) -> Iterator[Visit]:
    result = visit(browser, report)
    yield result
    result.page.context.close()
    assert result.complaints == []


@pytest.mark.parametrize("step", [0, 9, 24])
def test_the_read_out_is_the_trace(opened: Visit, trace: xr.Dataset, step: int) -> None:
    opened.page.click("h1 .word >> text=crimson")
    opened.page.select_option("#layer", "-1")
    opened.go(step)
    maps = summaries.word_maps(trace).sel(word="crimson").isel(step=step)
    assert opened.text("read-step") == f"{step} / 24"
    assert opened.number("read-mass") == pytest.approx(float(maps.mean()), rel=5e-3)
    assert opened.number("read-peak") == pytest.approx(float(maps.max()), rel=5e-3)
    assert opened.number("read-spread") == pytest.approx(float(summaries.spread(maps)), rel=1e-3)
    assert opened.number("read-timestep") == pytest.approx(float(trace["timestep"][step]), rel=5e-3)
    logsnr = float(trace["logsnr"][step])
    if np.isfinite(logsnr):
        assert opened.number("read-logsnr") == pytest.approx(logsnr, rel=5e-3)
    else:
        assert opened.text("read-logsnr") == "−∞"
    assert "crimson" in opened.text("legend-title")


def test_one_layer_and_the_guidance_map_are_chosen(opened: Visit, trace: xr.Dataset) -> None:
    opened.page.click("h1 .word >> text=blue")
    opened.page.select_option("#layer", "3")
    opened.go(16)
    maps = trace["attention"].sel(word="blue").isel(layer=3)
    assert opened.number("read-mass") == pytest.approx(float(maps[16].mean()), rel=5e-3)
    assert opened.number("ramp-low") == pytest.approx(float(maps.min()), rel=2e-2)
    assert opened.number("ramp-high") == pytest.approx(float(maps.max()), rel=2e-2)
    opened.page.select_option("#range", "step")
    assert opened.number("ramp-high") == pytest.approx(float(maps[16].max()), rel=2e-2)
    opened.page.select_option("#range", "run")
    opened.page.click("#show-guidance")
    assert opened.text("name-mass") == "effort"
    assert opened.number("read-mass") == pytest.approx(float(trace["guidance"][16].sum()), rel=5e-3)
    assert opened.page.get_attribute("#show-guidance", "aria-pressed") == "true"
    assert opened.page.locator("h1 [aria-pressed=true]").count() == 0
    opened.page.select_option("#layer", "-1", force=True)


def test_the_pointer_reads_the_map_under_it(opened: Visit, trace: xr.Dataset) -> None:
    opened.page.click("h1 .word >> text=circle")
    opened.go(12)
    box = opened.page.locator("#stage").bounding_box()
    assert box is not None
    # The middle of the cell in row 4, column 5 of the 16 x 16 map.
    opened.page.mouse.move(box["x"] + box["width"] * 5.5 / 16, box["y"] + box["height"] * 4.5 / 16)
    maps = summaries.word_maps(trace).sel(word="circle").isel(step=12)
    assert opened.number("read-pointer") == pytest.approx(float(maps[4, 5]), abs=float(maps.max()) / 200)


def test_the_overlay_is_painted_where_the_map_is_high(opened: Visit) -> None:
    opened.page.click("h1 .word >> text=circle")
    opened.go(14)
    read = """() => {
        const canvas = document.getElementById('overlay');
        const context = canvas.getContext('2d');
        const at = (u, v) => [...context.getImageData(u * canvas.width, v * canvas.height, 1, 1).data];
        return [at(0.32, 0.3), at(0.95, 0.95)];
    }"""
    high, low = opened.page.evaluate(read)
    assert high[3] > 2 * low[3] > 0
    assert high[1] > low[1] + 50
    opened.page.locator("#opacity").fill("0")
    assert opened.page.evaluate(read)[0][3] == 0
    opened.page.locator("#opacity").fill("60")
    opened.page.click("#show-none")
    assert opened.page.evaluate(read)[0] == [0, 0, 0, 0]
    assert opened.text("read-mass") == "–"


def test_keys_move_the_slider_and_the_page_says_so(opened: Visit) -> None:
    opened.page.click("h1 .word >> text=circle")
    opened.go(5)
    opened.page.focus("#step")
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowRight")
    assert opened.text("step-label") == "step 7"
    assert str(opened.page.text_content("#status")).startswith("Step 7, log-SNR")
    assert str(opened.page.get_attribute("#step", "aria-valuetext")).startswith("Step 7")
    opened.page.focus("h1 .word >> nth=0")
    opened.page.keyboard.press("Enter")
    assert WORDS[0] in opened.text("legend-title")


def test_a_step_that_was_not_observed_says_so(opened: Visit) -> None:
    opened.page.click("h1 .word >> text=circle")
    opened.go(20)
    assert opened.text("read-mass") == "–"
    assert "not observed" in str(opened.page.text_content("#status"))


def test_a_click_on_a_curve_moves_the_slider_and_the_marker(opened: Visit) -> None:
    opened.go(3)
    marker = "() => document.getElementById('plot-guidance').layout.shapes[0].x0"
    steps = opened.page.evaluate("() => [...document.getElementById('plot-guidance').data[1].x]")
    plot = opened.page.locator("#plot-guidance .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    low, high = opened.page.evaluate("() => document.getElementById('plot-guidance').layout.xaxis.range")
    x = box["x"] + box["width"] * (steps[15] - low) / (high - low)
    opened.page.mouse.move(x, box["y"] + 40)
    opened.page.wait_for_selector("#plot-guidance .hoverlayer .legend")
    opened.page.mouse.click(x, box["y"] + 40)
    opened.page.wait_for_function("() => document.getElementById('step').value === '15'")
    opened.page.wait_for_function(f"() => Math.abs(({marker})() - {steps[15]}) < 1e-6")


def test_a_click_on_the_layer_map_chooses_layer_and_step(opened: Visit, trace: xr.Dataset) -> None:
    opened.page.click("h1 .word >> text=striped")
    plot = opened.page.locator("#plot-layers .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 10.5 / 25, box["y"] + box["height"] * 2.5 / len(LAYERS)
    opened.page.mouse.move(x, y)
    opened.page.wait_for_selector("#plot-layers .hoverlayer .hovertext")
    opened.page.mouse.click(x, y)
    opened.page.wait_for_function("() => document.getElementById('step').value === '10'")
    assert opened.page.input_value("#layer") == "2"
    value = float(trace["attention"].sel(word="striped").isel(layer=2, step=10).mean())
    assert opened.number("read-mass") == pytest.approx(value, rel=5e-3)
    opened.page.select_option("#layer", "-1")


def test_playing_runs_to_the_end_and_stops(opened: Visit) -> None:
    opened.go(20)
    opened.page.click("#play")
    assert opened.text("play") == "Pause"
    opened.page.wait_for_function("() => document.getElementById('step').value === '24'", timeout=20_000)
    opened.page.wait_for_function("() => document.getElementById('play').textContent === 'Play'")


def test_the_picture_of_the_step_is_on_the_stage(opened: Visit) -> None:
    read = """() => {
        const canvas = document.getElementById('picture');
        return [...canvas.getContext('2d').getImageData(canvas.width * 0.32, canvas.height * 0.3, 1, 1).data];
    }"""
    opened.go(24)
    assert opened.page.evaluate(read)[:3] == pytest.approx([196, 30, 58], abs=8)
    opened.go(0)
    assert opened.page.evaluate(read)[:3] != pytest.approx([196, 30, 58], abs=8)


@pytest.mark.parametrize("width", [320, 400, 800, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_width_and_look(browser: "Browser", report: Path, width: int, scheme: str) -> None:
    seen = visit(browser, report, width=width, scheme=scheme)
    page = seen.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    light = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part > 128)"
    ink = "() => document.getElementById('plot-mass').layout.font.color"
    colour = page.evaluate(ink)
    assert page.evaluate(light) == (scheme == "light")
    page.click("#theme")
    assert page.evaluate(light) == (scheme == "dark")
    assert page.evaluate(ink) != colour
    page.context.close()
    assert seen.complaints == []


def test_paper_has_strips_and_no_controls(browser: "Browser", report: Path) -> None:
    seen = visit(browser, report, scheme="dark")
    seen.page.emulate_media(media="print")
    assert seen.page.locator("#strips .strip").count() == 1 + len(WORDS) + 1
    assert seen.page.locator("#strips canvas:visible").count() == 6 * (2 + len(WORDS))
    assert seen.page.locator("button:visible, input:visible, select:visible").evaluate_all(
        "found => found.map((element) => element.className)"
    ) == ["word"] * len(WORDS)
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.page.pdf(format="A4").startswith(b"%PDF")
    seen.page.context.close()
    assert seen.complaints == []


@pytest.mark.parametrize("kind", ["hostile", "bare", "one step"])
def test_odd_reports_open_without_a_complaint(browser: "Browser", tmp_path: Path, kind: str) -> None:
    attack = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    if kind == "hostile":
        trace = make_trace(prompt=f"a {attack} $x$", words=["<img", "$x$", "<b>q</b>"], layers=[attack])
        html = render_report(trace, MANIFEST | {"device": attack}, make_images(tmp_path))
    elif kind == "bare":
        html = render_report(make_trace(attention=False, guidance=False), {}, ReportImages())
    else:
        html = render_report(make_trace(steps=1, prompt=""), MANIFEST, make_images(tmp_path, steps=1))
    path = tmp_path / "report.html"
    path.write_text(html, encoding="utf-8")
    seen = visit(browser, path, width=400)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 400
    if kind == "hostile":
        assert attack in seen.page.inner_text("h1")
        legend = seen.page.locator("#plot-mass .legendtext").all_text_contents()
        assert legend == ["<img", "$x$", "<b>q</b>"]
        seen.page.click("#show-guidance")
        assert seen.page.locator("img").count() == 1
    elif kind == "bare":
        assert re.search("no cross-attention", seen.page.inner_text("body"))
    seen.page.context.close()
    assert seen.complaints == []


def test_what_a_word_adds_lies_over_the_picture(browser: "Browser", tmp_path: Path) -> None:
    trace = make_trace(hole=20, information="guidance effort")
    path = tmp_path / "report.html"
    path.write_text(render_report(trace, MANIFEST, make_images(tmp_path)), "utf-8")
    opened = visit(browser, path)
    opened.page.click("h1 .word >> text=blue")
    opened.page.select_option("#layer", label="what the word adds (guidance effort)")
    opened.go(11)
    rates = trace["information_rate"].sel(word="blue").isel(step=11)
    assert opened.number("read-mass") == pytest.approx(float(rates.sum()), rel=0.01)
    assert opened.number("read-peak") == pytest.approx(float(rates.max()), rel=0.01)
    assert opened.text("name-mass") == "nats"
    assert opened.text("legend-title") == "What “blue” adds at each place (guidance effort)"
    assert opened.page.locator("#plot-rate .scatterlayer .trace").count() > 2
    assert opened.page.locator("#plot-gradient").count() == 1
    opened.page.context.close()
    assert opened.complaints == []
