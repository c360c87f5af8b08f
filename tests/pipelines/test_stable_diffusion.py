"""What the Stable Diffusion adapter says of prompts, branches and maps; decoding."""

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline

from denoscope.pipelines import adapter_for, decode_latents


def words_of(pipe: StableDiffusionPipeline, prompt: str) -> dict[str, tuple[int, ...]]:
    adapter = adapter_for(pipe)
    tokens = adapter.prompt_tokens(pipe, adapter.tokenize(pipe, prompt))
    assert len(tokens.kinds) == 32
    # Every position between the start and the end belongs to exactly one word.
    positions = [position for word in tokens.words for position in word.positions]
    assert positions == [i for i, kind in enumerate(tokens.kinds) if kind == "words"]
    return {word.label: word.positions for word in tokens.words}


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("a red circle", {"a": (1,), "red": (2,), "circle": (3,)}),
        ("RED red Red", {"red": (1,), "red#2": (2,), "red#3": (3,)}),
        ("crimson disc", {"crimson": (1, 2, 3, 4, 5), "disc": (6,)}),
        ("a circle, a square", {"a": (1,), "circle": (2,), ",": (3,), "a#2": (4,), "square": (5,)}),
        ("", {}),
    ],
)
def test_words(pipe: StableDiffusionPipeline, prompt: str, words: dict[str, tuple[int, ...]]) -> None:
    assert words_of(pipe, prompt) == words


def test_other_scripts_are_words_too(pipe: StableDiffusionPipeline) -> None:
    assert list(words_of(pipe, "café 日本 🎨")) == ["café", "日本", "🎨"]


def test_a_word_cut_off_by_the_tokenizers_length_ends_there(pipe: StableDiffusionPipeline) -> None:
    found = words_of(pipe, "a " * 28 + "crimson")
    assert list(found)[-1] == "cri"
    assert list(found.values())[-1] == (29, 30)


def test_an_added_token_is_a_word_alone(pipe: StableDiffusionPipeline) -> None:
    pipe.tokenizer.add_tokens(["<my-cat>"])
    assert words_of(pipe, "a <my-cat> circle") == {"a": (1,), "<my-cat>": (2,), "circle": (3,)}


def test_kinds_with_a_padding_token_of_its_own(pipe: StableDiffusionPipeline) -> None:
    adapter = adapter_for(pipe)
    for padding in (pipe.tokenizer.eos_token_id, 0):
        ids = [pipe.tokenizer.bos_token_id, *pipe.tokenizer.convert_tokens_to_ids(["a</w>", "red</w>"])]
        ids += [pipe.tokenizer.eos_token_id, padding, padding]
        tokens = adapter.prompt_tokens(pipe, [ids])
        assert tokens.kinds == ("bos", "words", "words", "eos", "padding", "padding")


def test_the_tokens_are_the_pipelines(pipe: StableDiffusionPipeline) -> None:
    seen: list[torch.Tensor] = []
    pipe.text_encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for prompt in ("a red circle", "red " * 50):
        pipe.encode_prompt(prompt, "cpu", 1, False)
        assert [seen[-1][0].tolist()] == adapter_for(pipe).tokenize(pipe, prompt)


@pytest.mark.parametrize(
    ("latent", "queries", "size"),
    [
        ((64, 64), 4096, (64, 64)),
        ((64, 64), 64, (8, 8)),
        ((64, 96), 1536, (32, 48)),
        ((9, 11), 30, (5, 6)),
        ((9, 11), 9, (3, 3)),
        ((1, 5), 2, (1, 2)),
        ((1, 1), 1, (1, 1)),
    ],
)
def test_map_sizes(pipe: StableDiffusionPipeline, latent: tuple[int, int], queries: int, size: tuple[int, int]) -> None:
    assert adapter_for(pipe).map_size(latent, queries) == size


@pytest.mark.parametrize("queries", [0, 5, 63, 65])
def test_a_map_of_no_level(pipe: StableDiffusionPipeline, queries: int) -> None:
    with pytest.raises(ValueError, match="no level of the denoiser has"):
        adapter_for(pipe).map_size((8, 8), queries)


def test_latents_decode_as_in_the_pipeline(pipe: StableDiffusionPipeline) -> None:
    kwargs = {"num_inference_steps": 2, "num_images_per_prompt": 9}
    latents, pictures = (
        pipe("a red circle", generator=torch.Generator().manual_seed(1), output_type=kind, **kwargs).images
        for kind in ("latent", "np")
    )
    decoded = decode_latents(pipe, latents)
    assert len(decoded) == 9
    assert decoded[0].shape == (64, 64, 3)
    assert decoded[0].dtype == np.uint8
    assert np.abs(np.stack(decoded) - np.rint(pictures * 255)).max() <= 1
    assert np.stack(decoded).std() > 5
