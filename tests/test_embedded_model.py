"""The model in the package: small, loadable by diffusers alone, and good at what its card says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from safetensors import safe_open

import denoscope
from denoscope.data.worlds.shapes.judging import judge, rates
from denoscope.data.worlds.shapes.tokens import new_tokenizer
from denoscope.networks import load_unet
from denoscope.pipelines import sampling_defaults
from denoscope.pipelines.loading import embedded_folder
from denoscope.training.shapes.denoiser import sample_captioned

FOLDER = embedded_folder("shapes")


@pytest.fixture(scope="module")
def pipe() -> StableDiffusionPipeline:
    loaded = denoscope.load("shapes", "cpu")
    loaded.set_progress_bar_config(disable=True)
    return loaded


def test_the_folder_is_small_and_holds_float16_safetensors_only() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 16e6
    assert {path.suffix for path in files} == {".json", ".safetensors", ".md"}
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                names = list(file.keys())
                assert names
                assert all(file.get_tensor(name).dtype in (torch.float16, torch.int64) for name in names)


def test_it_says_nothing_of_where_it_was_made() -> None:
    for path in FOLDER.rglob("*config.json"):
        assert "_name_or_path" not in json.loads(path.read_text("utf-8")), path


def test_its_words_have_the_numbers_that_a_new_tokenizer_gives_them(pipe: StableDiffusionPipeline) -> None:
    assert pipe.tokenizer.get_vocab() == new_tokenizer().get_vocab()


def test_diffusers_loads_it_without_denoscope(pipe: StableDiffusionPipeline) -> None:
    plain = StableDiffusionPipeline.from_pretrained(FOLDER, dtype=torch.float32)
    plain.set_progress_bar_config(disable=True)
    pictures = [
        each("a red circle", num_inference_steps=3, generator=torch.Generator().manual_seed(0), output_type="np").images
        for each in (plain, pipe)
    ]
    assert np.array_equal(pictures[0], pictures[1])


def test_our_own_u_net_reads_the_same_folder_with_equal_output() -> None:
    theirs, ours = UNet2DConditionModel.from_pretrained(FOLDER / "unet").float().eval(), load_unet(FOLDER / "unet")
    z, states = torch.randn(2, 4, 8, 8), torch.randn(2, 32, 128)
    for timestep in (0, 500, 999):
        with torch.no_grad():
            difference = (theirs(z, timestep, states).sample - ours(z, timestep, states)).abs().max()
        assert float(difference) <= 1e-5


def test_it_draws_what_unseen_captions_say(pipe: StableDiffusionPipeline) -> None:
    """A guard against a broken model or sampler, not the measurement: benchmarks/shapes_quality.py is that."""
    rng = np.random.default_rng(7)
    drawn = [sample_captioned(rng, unseen=True) for _ in range(40)]
    defaults = sampling_defaults(pipe)
    pictures = pipe(
        [text for _, text, _ in drawn],
        num_inference_steps=defaults.num_inference_steps,
        guidance_scale=defaults.guidance_scale,
        generator=[torch.Generator().manual_seed(i) for i in range(len(drawn))],
        output_type="np",
    ).images
    judged = [
        judge(np.rint(p * 255).astype(np.uint8), meaning) for p, (_, _, meaning) in zip(pictures, drawn, strict=True)
    ]
    assert rates(judged)["whole"].value >= 0.85


def test_same_seed_same_picture_in_any_batch(pipe: StableDiffusionPipeline) -> None:
    texts = ["a red circle", "a blue square", "a green cross"]
    arguments = {"num_inference_steps": 8, "output_type": "np"}
    together = pipe(texts, generator=[torch.Generator().manual_seed(i) for i in range(3)], **arguments).images
    alone = pipe(texts[1], generator=torch.Generator().manual_seed(1), **arguments).images
    assert np.abs(together[1] - alone[0]).max() <= 1e-4


def test_word_maps_lie_on_their_own_object(pipe: StableDiffusionPipeline) -> None:
    from benchmarks.attention_on_object import measure

    rows, unread = measure("shapes", n=12, seed=50_000)
    own, other = (np.mean([float(row[name]) for row in rows if row["kind"] == "shape"]) for name in ("own", "other"))
    assert unread < 6
    assert own > other


def test_the_card_states_what_was_measured() -> None:
    card = Path(FOLDER, "README.md").read_text("utf-8")
    for command in ("benchmarks.shapes_quality", "benchmarks.bayes_floor", "benchmarks.attention_on_object"):
        assert command in card
    for table in ("quality", "ceiling", "floor", "attention", "geometry"):
        place = card.split(f"<!-- {table} -->")[1].split(f"<!-- /{table} -->")[0]
        assert place.count("\n|") >= 4, f"{table} is not filled: python -m benchmarks.model_card"
