"""The page as text: what stands in it, what can't get into it, and how large it grows."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from report_samples import LAYERS, MANIFEST, PROMPT, WORDS, make_images, make_trace

from denoscope.reports import ReportError, ReportImages, render_report, write_report
from denoscope.reports.arrays import coarsen, pack_maps, quantise
from denoscope.reports.data import first_choice, safe_json
from denoscope.reports.facts import facts
from denoscope.reports.prompt import split_prompt

HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(1)</script> <!-- {{ 7*7 }} \u2028 &amp; \" ' $x$"


class Page(HTMLParser):
    """What a browser would see: elements with attributes, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: dict[str | None, str] = {}
        self._inside: str | None = None
        self._script: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        self._script = dict(attrs).get("id")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.text += data
        elif self._inside == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def data_of(html: str) -> dict[str, object]:
    document = json.loads(Page(html).scripts["data"])
    assert isinstance(document, dict)
    return document


def arrays_of(html: str) -> dict[str, np.ndarray]:
    """The arrays of a page, unpacked as its script unpacks them."""
    data = data_of(html)
    block = gzip.decompress(base64.b64decode(str(data["block"])))
    directory = data["arrays"]
    assert isinstance(directory, dict)
    arrays: dict[str, np.ndarray] = {}
    for name, entry in directory.items():
        kind = np.dtype({"uint8": "u1", "float32": "<f4"}[entry["kind"]])
        size = int(np.prod(entry["shape"]))
        arrays[name] = np.frombuffer(block, kind, size, entry["offset"]).reshape(entry["shape"])
    return arrays


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render_report(make_trace(), MANIFEST, make_images(tmp_path_factory.mktemp("run")))


def test_the_page_has_its_parts(html: str) -> None:
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert page.count("h1") == 1
    assert PROMPT in page.text
    words = [attributes for tag, attributes in page.elements if tag == "button" and attributes.get("class") == "word"]
    assert [WORDS[int(str(word["data-word"]))] for word in words] == WORDS
    for wanted in (
        "shapes",
        "DDPMScheduler",
        "9f86d081884c",
        "torch 2.13.0",
        "sample 6.42 s",
        "float32",
        "2026-12-01 15:30:12 UTC",
    ):
        assert wanted in page.text
    for claim in ("Attention mass is not information", "effort of guidance, not information"):
        assert claim in page.text
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = {attributes["for"] for tag, attributes in page.elements if tag == "label"}
    for tag, attributes in page.elements:
        if tag in ("input", "select"):
            assert "aria-label" in attributes or attributes["id"] in labelled
    assert all(f'id="plot-{name}"' in html for name in ("mass", "spread", "layers", "tokens", "guidance"))


def test_the_page_asks_for_nothing_and_allows_nothing(html: str) -> None:
    page = Page(html)
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert str(attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    [policy] = [str(a["content"]) for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert not re.search(r"script-src[^;]*unsafe-inline", policy)
    css = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in css
    assert "@import" not in css


def test_the_library_of_plots_is_in_the_page_once(html: str) -> None:
    source = gzip.decompress(base64.b64decode(Page(html).scripts["plotly"])).decode()
    assert source.lstrip().startswith("/**\n* plotly.js")
    assert html.count('id="plotly"') == 1
    assert len(html) < 3_000_000


@pytest.mark.parametrize("where", ["prompt", "words", "layers", "manifest"])
def test_hostile_text_stays_text(where: str, tmp_path: Path) -> None:
    plain = render_report(make_trace(), MANIFEST, make_images(tmp_path))
    trace = make_trace(
        prompt=HOSTILE if where in ("prompt", "words") else PROMPT,
        words=["<img", "</script><script>alert(1)</script>", "<b>nowhere</b>"] if where == "words" else None,
        layers=[f"{HOSTILE}.{name}" for name in LAYERS] if where == "layers" else None,
    )
    manifest = MANIFEST | {"model": {"name": HOSTILE}, "device": HOSTILE} if where == "manifest" else MANIFEST
    html = render_report(trace, manifest, make_images(tmp_path))
    page, reference = Page(html), Page(plain)
    assert HOSTILE in page.text or where == "layers"
    for tag in ("script", "img", "style", "iframe", "b"):
        assert page.count(tag) == reference.count(tag), tag
    assert "49" not in re.findall(r"<!-- (\S+)", page.text)
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    script = page.scripts["data"]
    assert not set("<>&\u2028\u2029") & set(script)
    if where == "words":
        assert data_of(html)["words"][1]["label"] == "</script><script>alert(1)</script>"  # type: ignore[index]


@given(st.text())
def test_json_in_a_script_is_safe_and_the_same(text: str) -> None:
    encoded = safe_json({"text": text})
    assert encoded.isascii()
    assert not set("<>&") & set(encoded)
    assert json.loads(encoded) == {"text": text}


def test_maps_and_numbers_of_the_page_are_those_of_the_trace(tmp_path: Path) -> None:
    trace = make_trace(hole=3)
    arrays = arrays_of(render_report(trace, MANIFEST, make_images(tmp_path)))
    seen = np.arange(25) != 3
    mean = trace["attention"].mean("layer").values
    decoded = arrays["words"] / 255.0 * arrays["words_scale"][..., None, None]
    np.testing.assert_allclose(decoded[:, seen], mean[:, seen], atol=float(np.nanmax(mean)) / 500)
    assert np.isnan(arrays["words_scale"][:, 3]).all()
    by_layer = trace["attention"].values.swapaxes(1, 2)
    decoded = arrays["layers"] / 255.0 * arrays["layers_scale"][..., None, None]
    np.testing.assert_allclose(decoded[:, :, seen], by_layer[:, :, seen], atol=float(np.nanmax(by_layer)) / 500)
    np.testing.assert_allclose(arrays["word_stats"][:, 1:, :, 0], by_layer.mean((-2, -1)), rtol=1e-5)
    np.testing.assert_allclose(arrays["word_stats"][:, 0, :, 1], mean.max((-2, -1)), rtol=1e-6)
    np.testing.assert_allclose(arrays["guidance_stats"][:, 0], trace["guidance"].values.sum((1, 2)), rtol=1e-5)


def test_articles_stand_back() -> None:
    words = ["a", "circle", "a#2", "square"]
    trace = make_trace("a circle above a square", words)
    attention = trace["attention"].copy()
    y, x = np.mgrid[0:16, 0:16]
    width = {"a": 1.0, "circle": 4.0, "a#2": 2.0, "square": 3.0}
    for word in words:  # the article's map is the most gathered
        attention.loc[{"word": word}] = np.exp(-((y - 8) ** 2 + (x - 8) ** 2) / width[word] ** 2)
    assert first_choice(trace.assign(attention=attention)) == words.index("square")
    only = trace.assign(attention=attention).sel(word=["a", "a#2"])
    assert first_choice(only) == 0


def test_what_is_missing_is_said_in_a_sentence(tmp_path: Path) -> None:
    page = Page(render_report(make_trace(attention=False, guidance=False), {}, ReportImages()))
    assert "There are no word maps: no cross-attention was observed" in page.text
    assert "There is no guidance difference: this run used no classifier-free guidance" in page.text
    assert "There are no token masses" in page.text
    assert "This run kept no pictures of its steps." in page.text
    assert page.count("select") == 1
    assert data_of(render_report(make_trace(words=[]), {}, ReportImages()))["first_word"] is None
    zero = render_report(make_trace(zero_snr=True), MANIFEST, make_images(tmp_path))
    assert data_of(zero)["steps"]["logsnr"][0] == "-inf"  # type: ignore[index]
    with pytest.raises(ReportError, match="has no steps"):
        render_report(make_trace().isel(step=slice(0)), MANIFEST, ReportImages())


def test_a_large_model_still_fits_in_six_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    steps = 30
    trace = make_trace(steps=steps, words=[])
    # Noise is the worst that can be: it does not compress.
    maps = rng.random((6, steps, 12, 64, 64), np.float32)
    big = xr.Dataset(
        {
            "attention": (("word", "step", "layer", "y", "x"), maps),
            "guidance": (("step", "y", "x"), rng.random((steps, 64, 64), np.float32)),
        },
        coords={name: trace[name] for name in ("step", "timestep", "sigma", "logsnr")}
        | {"word": [f"word{n}" for n in range(6)], "layer": [f"up_blocks.{n}.attn2" for n in range(12)]},
        attrs=trace.attrs,
    )
    (tmp_path / "images").mkdir()
    noise = Image.fromarray(rng.integers(0, 255, (512, 512, 3), np.uint8))
    for step in range(steps):
        noise.save(tmp_path / f"images/x0_{step:03d}.png", compress_level=1)
    noise.save(tmp_path / "images/final.png", compress_level=1)
    html = render_report(big, MANIFEST, ReportImages.of_folder(tmp_path))
    assert len(html) <= 6_000_000
    assert "are averaged over" in Page(html).text
    arrays = arrays_of(html)
    np.testing.assert_allclose(arrays["word_stats"][:, 1:, :, 1], maps.max((-2, -1)).swapaxes(1, 2), rtol=1e-6)


def test_writing_replaces_the_report_and_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="can't be reported"):
        write_report(tmp_path)
    make_images(tmp_path)
    make_trace(prompt="a red \u2028 dog").to_netcdf(tmp_path / "trace.nc", engine="h5netcdf")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(ReportError, match="no manifest"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "report.html").write_text("old")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert "a red \u2028 dog" in path.read_text(encoding="utf-8")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["images", "report.html", "run.json", "trace.nc"]
    (tmp_path / "images/x0_000.png").write_bytes(b"no picture")
    with pytest.raises(ReportError, match="can't be read as a picture"):
        write_report(tmp_path)
    assert "a red \u2028 dog" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("prompt", "words", "pieces", "missing"),
    [
        ("Red redder RED", ["red", "red#2"], [("Red", 0), (" redder ", None), ("RED", 1)], []),
        ("a#2 b", ["a#2"], [("a#2", 0), (" b", None)], []),
        ("rusty", ["rust"], [("rust", 0), ("y", None)], []),
        ("b a", ["a", "b"], [("b", 1), (" ", None), ("a", 0)], []),
        ("a dog", ["a dog", "dog"], [("a dog", 0)], [1]),
        ("", ["x", ""], [], [0, 1]),
        ("(.*)", [".*"], [("(", None), (".*", 0), (")", None)], []),
    ],
)
def test_words_are_found_in_the_prompt(
    prompt: str, words: list[str], pieces: list[tuple[str, int | None]], missing: list[int]
) -> None:
    found, left = split_prompt(prompt, words)
    assert [(piece.text, piece.word) for piece in found] == pieces
    assert left == missing


@given(st.text(max_size=60), st.lists(st.text(max_size=6), max_size=5))
def test_the_pieces_of_a_prompt_make_the_prompt(prompt: str, words: list[str]) -> None:
    pieces, missing = split_prompt(prompt, words)
    assert "".join(piece.text for piece in pieces) == prompt
    shown = [piece.word for piece in pieces if piece.word is not None]
    assert sorted([*shown, *missing]) == list(range(len(words)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_coarser_maps_keep_means_and_bytes_keep_values(height: int, width: int, factor: int, seed: int) -> None:
    maps = np.random.default_rng(seed).random((2, height, width), np.float32)
    coarse = coarsen(maps, factor)
    assert coarse.shape == (2, -(-height // factor), -(-width // factor))
    np.testing.assert_allclose(coarse[:, 0, 0], maps[:, :factor, :factor].mean((1, 2)), rtol=1e-5)
    packed = quantise(maps)
    np.testing.assert_allclose(packed.levels / 255.0 * packed.scale[:, None, None], maps, atol=1 / 500)


def test_maps_are_made_coarse_until_they_fit() -> None:
    maps = np.random.default_rng(0).random((10, 64, 64), np.float32)
    assert pack_maps(maps, 50_000).factor == 1
    assert pack_maps(maps, 15_000).factor == 2
    assert pack_maps(maps, 1).levels.shape == (10, 1, 1)


def test_an_odd_manifest_loses_rows_and_not_the_report() -> None:
    rows = dict(facts(make_trace(), {"model": "text", "seconds": None, "arguments": [1], "command": 3}))
    assert rows == {"Steps": "25", "Guidance scale": "4", "denoscope": "0.1.0", "Command": "3"}
