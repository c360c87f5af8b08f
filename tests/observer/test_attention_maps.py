"""Attention maps agree with a brute-force softmax, whatever the size, the guidance and the words."""

import numpy as np
import pytest
import torch
import xarray as xr
from attention_reference import on_latent_grid, recorded
from diffusers import StableDiffusionPipeline

from denoscope import ObserveError, observe
from denoscope.observer.attention import column_mass

PROMPT = "a red circle above a red crimson square"
# BOS, then one token each, but for "crimson", which the tokenizer spells out.
POSITIONS = {
    "a": [1],
    "red": [2],
    "circle": [3],
    "above": [4],
    "a#2": [5],
    "red#2": [6],
    "crimson": list(range(7, 12)),
    "square": [12],
}


def draw(pipe: StableDiffusionPipeline, prompt: str | list[str] | None = PROMPT, **kwargs: object) -> torch.Tensor:
    settings = {"num_inference_steps": 2, "output_type": "latent", "height": 64, "width": 64} | kwargs
    latents: torch.Tensor = pipe(prompt, generator=torch.Generator().manual_seed(5), **settings).images
    return latents


@pytest.mark.parametrize("guidance_scale", [1.0, 7.5])
@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 96), (72, 88), (8, 40)])
def test_maps_are_the_softmax_of_the_layers_own_queries_and_keys(
    pipe: StableDiffusionPipeline, height: int, width: int, guidance_scale: float
) -> None:
    with recorded(pipe) as reference, observe(pipe) as watch:
        draw(pipe, height=height, width=width, guidance_scale=guidance_scale)
    trace = watch.trace
    assert set(trace.layer.values) == set(reference.layers)
    assert len(trace.layer) == 10
    assert trace.sizes["step"] == 2
    assert trace.word.values.tolist() == list(POSITIONS)
    for layer in reference.layers:
        for step in range(2):
            whole = reference.probabilities(layer, step)
            assert len(whole) == (2 if guidance_scale > 1 else 1)
            for word, positions in POSITIONS.items():
                expected = on_latent_grid(whole[-1][:, positions].sum(-1), height // 8, width // 8)
                seen = trace.attention.sel(word=word, layer=layer).isel(step=step)
                np.testing.assert_allclose(seen, expected, atol=2e-6)
            kinds = {"bos": [0], "words": range(1, 13), "eos": [13], "padding": range(14, 32)}
            for kind, places in kinds.items():
                mass = trace.token_mass.sel(token_kind=kind, layer=layer).isel(step=step)
                np.testing.assert_allclose(mass, whole[-1][:, list(places)].sum(-1).mean(), atol=2e-6)
    # The reference tells words apart, so agreeing with it means something.
    assert float(trace.attention.std("word").mean()) > 0.005


def test_several_pictures_of_a_prompt_have_a_map_each(pipe: StableDiffusionPipeline) -> None:
    with recorded(pipe) as reference, observe(pipe, words=["circle"]) as watch:
        draw(pipe, num_images_per_prompt=2, guidance_scale=3)
    maps = watch.trace.attention.sel(word="circle").isel(step=1)
    assert maps.sizes["sample"] == 2
    layer = "mid_block.attentions.0.transformer_blocks.0.attn2"
    whole = reference.probabilities(layer, 1)
    for sample in range(2):
        expected = on_latent_grid(whole[2 + sample][:, 3], 8, 8)
        np.testing.assert_allclose(maps.sel(layer=layer).isel(sample=sample), expected, atol=2e-6)
    assert not np.allclose(whole[2], whole[3], atol=1e-4)
    assert watch.trace.x0.dims == ("sample", "step", "channel", "y", "x")


def test_layers_are_in_calling_order(pipe: StableDiffusionPipeline) -> None:
    called = []
    for name, module in pipe.unet.named_modules():
        if name.endswith("attn2"):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    with observe(pipe) as watch:
        draw(pipe, num_inference_steps=1)
    assert watch.trace.layer.values.tolist() == called


def test_all_mass_is_accounted_for(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe)
    trace = watch.trace
    np.testing.assert_allclose(trace.token_mass.sum("token_kind"), 1, atol=1e-5)
    by_word = trace.attention.sum("word").mean(("y", "x"))
    np.testing.assert_allclose(by_word, trace.token_mass.sel(token_kind="words"), atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["red"], ["red", "red#2"]),
        (["red#2"], ["red#2"]),
        (["SQUARE", " circle "], ["circle", "square"]),
        ("crimson", ["crimson"]),
    ],
)
def test_words_are_chosen(pipe: StableDiffusionPipeline, asked: list[str] | str, found: list[str]) -> None:
    with observe(pipe, words=asked) as watch:
        draw(pipe, num_inference_steps=1)
    assert watch.trace.word.values.tolist() == found
    if asked == "crimson":
        assert watch.trace.word_tokens.values.tolist() == ["c·ri·m·s·on</w>"]


def test_an_unknown_word_is_told_and_the_picture_drawn(pipe: StableDiffusionPipeline) -> None:
    plain = draw(pipe)
    with observe(pipe, words=["dog"]) as watch:
        assert torch.equal(draw(pipe), plain)
    with pytest.raises(ObserveError, match=r"'dog' is not in the prompt; its words are 'a', 'red', 'circle'"):
        _ = watch.trace


def test_a_prompt_longer_than_the_tokenizer(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe, " ".join(["red"] * 40), num_inference_steps=1)
    trace = watch.trace
    assert trace.word.values.tolist() == ["red", *(f"red#{n}" for n in range(2, 31))]
    assert float(trace.token_mass.sel(token_kind="padding").max()) == 0
    np.testing.assert_allclose(trace.token_mass.sum("token_kind"), 1, atol=1e-5)


def test_a_glob_chooses_layers_and_coarse_maps_keep_the_latents_grid(pipe: StableDiffusionPipeline) -> None:
    def seen(layers: str, bare: bool = False) -> xr.Dataset:
        with observe(pipe, layers=layers, x0=not bare, keep_steps=not bare) as watch:
            draw(pipe, height=72, guidance_scale=1)
        return watch.trace

    every, mid = seen("*"), seen("mid_block*")
    assert mid.layer.values.tolist() == ["mid_block.attentions.0.transformer_blocks.0.attn2"]
    xr.testing.assert_equal(mid.attention, every.attention.sel(layer=mid.layer))
    # Neither guidance nor x0 tell the grid here, nor is the first layer of the finest level.
    bare = seen("up_blocks*", bare=True)
    assert dict(bare.sizes) == {"word": 8, "layer": 6, "y": 9, "x": 8, "token_kind": 4}
    np.testing.assert_allclose(bare.attention, every.attention.sel(layer=bare.layer).mean("step"), atol=1e-6)
    with pytest.raises(ObserveError, match=r"no cross-attention layer matches 'nowhere\*'; there are down_blocks"):
        observe(pipe, layers="nowhere*")


@pytest.mark.parametrize("guidance_scale", [1.0, 7.5])
def test_embeddings_need_the_prompt_told(pipe: StableDiffusionPipeline, guidance_scale: float) -> None:
    embeddings, _ = pipe.encode_prompt(PROMPT, "cpu", 1, False)
    with observe(pipe) as watch:
        plain = draw(pipe, guidance_scale=guidance_scale)
    expected = watch.trace
    kwargs = {"prompt_embeds": embeddings, "guidance_scale": guidance_scale}
    # Under guidance the pipeline still encodes the empty negative prompt, which is not the prompt.
    with observe(pipe) as watch:
        assert torch.equal(draw(pipe, None, **kwargs), plain)
    with pytest.raises(ObserveError, match=r"given as embeddings\); pass observe\(..., prompt=TEXT\)"):
        _ = watch.trace
    with observe(pipe, prompt=PROMPT) as watch:
        draw(pipe, None, **kwargs)
    xr.testing.assert_equal(watch.trace, expected)


def test_embeddings_made_inside_the_block_of_another_prompt_do_not_lend_it_their_words(
    pipe: StableDiffusionPipeline,
) -> None:
    with observe(pipe) as watch:
        first, _ = pipe.encode_prompt("a red circle", "cpu", 1, False)
        pipe.encode_prompt("a blue square", "cpu", 1, False)
        draw(pipe, None, prompt_embeds=first)
    with pytest.raises(ObserveError, match="given as embeddings"):
        _ = watch.trace


def test_a_prompt_told_must_be_the_one_drawn(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe, prompt="a blue square") as watch:
        draw(pipe)
    with pytest.raises(ObserveError, match="another prompt than observe"):
        _ = watch.trace
    with pytest.raises(ObserveError, match="'dog' is not in the prompt"):
        observe(pipe, prompt=PROMPT, words=["dog"])


def test_the_negative_prompt_lends_no_words(pipe: StableDiffusionPipeline) -> None:
    with observe(pipe) as watch:
        draw(pipe, "a red circle", negative_prompt="a blue square", num_inference_steps=1)
    assert watch.trace.word.values.tolist() == ["a", "red", "circle"]


def test_a_pipeline_without_text_encoder_is_watched(pipe: StableDiffusionPipeline) -> None:
    embeddings, negative = pipe.encode_prompt(PROMPT, "cpu", 1, True)
    pipe.text_encoder = None
    with observe(pipe, prompt=PROMPT, words=["circle"]) as watch:
        draw(pipe, None, prompt_embeds=embeddings, negative_prompt_embeds=negative, num_inference_steps=1)
    assert watch.trace.word.values.tolist() == ["circle"]


def random_heads(places: int) -> torch.Tensor:
    return 2 * torch.randn(2, 3, places, 8, generator=torch.Generator().manual_seed(places))


@pytest.mark.parametrize("kind", ["none", "boolean", "boolean row", "added"])
def test_column_mass_with_masks(kind: str) -> None:
    query, key = random_heads(5000), random_heads(6)
    keep = torch.rand(2, 1, 5000, 6, generator=torch.Generator().manual_seed(1)) > 0.4
    keep[..., 0] = True
    mask = {
        "none": None,
        "boolean": keep,
        "boolean row": keep[:, :, :1],
        "added": torch.where(keep, 0.5, -3.0),
    }[kind]
    scores = query.double() @ key.double().transpose(-1, -2) * 0.3
    if mask is not None:
        scores = scores + (torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask)
    columns = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 0], [0, 1], [0, 0]])
    expected = (scores.softmax(-1) @ columns.double()).mean(1)
    np.testing.assert_allclose(column_mass(query, key, columns, mask, 0.3), expected, atol=1e-6)


@pytest.mark.parametrize("few", [0, 1 << 30])
def test_the_kernel_and_plain_sums_agree_with_float64(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("denoscope.observer.attention._FEW", few)
    query, key = random_heads(300), random_heads(40)
    columns = torch.nn.functional.one_hot(torch.arange(40) % 19).float()  # more columns than a head is wide
    scores = query.double() @ key.double().transpose(-1, -2)
    for scale in (None, 0.3):
        expected = ((scores * (scale or 8**-0.5)).softmax(-1) @ columns.double()).mean(1)
        np.testing.assert_allclose(column_mass(query, key, columns, scale=scale), expected, atol=1e-6)


def test_column_mass_is_float32_under_autocast() -> None:
    query, key = random_heads(64), random_heads(6)
    columns = torch.eye(6)
    with torch.autocast("cpu", torch.bfloat16):
        seen = column_mass(query.bfloat16(), key.bfloat16(), columns)
    expected = column_mass(query.bfloat16().double(), key.bfloat16().double(), columns)
    assert seen.dtype == torch.float32
    np.testing.assert_allclose(seen, expected, atol=1e-6)


def test_heads_apart_are_those_of_float64_and_make_the_mean(pipe: StableDiffusionPipeline) -> None:
    with recorded(pipe) as reference, observe(pipe, heads=True) as watch:
        draw(pipe)
    with observe(pipe) as other:
        draw(pipe)
    apart = watch.trace.attention
    np.testing.assert_allclose(apart.mean("head", skipna=True), other.trace.attention, atol=1e-6)
    np.testing.assert_allclose(watch.trace.token_mass, other.trace.token_mass, atol=1e-6)
    for name, layer in reference.layers.items():
        query, key = (
            reference._heads(reference.inputs[name, part][0], getattr(layer, part), layer.heads)
            for part in ("to_q", "to_k")
        )
        weights = (query @ key.transpose(-1, -2) / np.sqrt(query.shape[-1])).softmax(-1)[1].detach().numpy()
        assert int(np.isfinite(apart.sel(layer=name, word="red").isel(step=0, y=0, x=0)).sum()) == layer.heads
        for head in range(layer.heads):
            expected = on_latent_grid(weights[head][:, 2], 8, 8)
            seen = apart.sel(layer=name, word="red").isel(step=0, head=head)
            np.testing.assert_allclose(seen, expected, atol=2e-6)
