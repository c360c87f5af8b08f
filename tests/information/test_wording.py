"""Templates, and the text encoder's view of words."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline

import denoscope
from denoscope.information import InformationError
from denoscope.information.wording.calibration import calibrate
from denoscope.information.wording.encoding import states, text_reader, word_vectors, words_in
from denoscope.information.wording.proposals import propose, substitutes
from denoscope.information.wording.template import Template, load_template, parse_slot, save_template

PROMPT = "a small red circle above a blue square"


@pytest.fixture(scope="module")
def shapes() -> StableDiffusionPipeline:
    return denoscope.load("shapes", "cpu")


def test_values_are_put_in_as_they_are() -> None:
    template = Template("a {one} {two} {one}", {"one": ("{two}", "x"), "two": ("<b>", "{0.__class__}")})
    assert template.prompt(one="{two}", two="{0.__class__}") == "a {two} {0.__class__} {two}"


@pytest.mark.parametrize(
    ("text", "slots", "contexts", "words"),
    [
        ("a {colour} {shape}", {"colour": ("red", "blue")}, {}, "{shape} has no values"),
        ("a {colour}", {"colour": ("red", "blue")}, {"size": ("big",)}, "no {size}"),
        ("a {colour}", {"colour": ("red",)}, {}, "two substitutes"),
        ("a {colour}", {"colour": ("red", "red")}, {}, "twice"),
        ("a {colour}", {"colour": ("red", " ")}, {}, "empty"),
        ("a {colour", {"colour": ("red", "blue")}, {}, "braces"),
        ("a {0}", {}, {}, "braces"),
        ("a {colour.real}", {"colour": ("red", "blue")}, {}, "braces"),
        ("a {colour}", {"colour": ("red", "blue")}, {"colour": ("x",)}, "a slot and a context"),
    ],
)
def test_templates_that_are_none(
    text: str, slots: dict[str, tuple[str, ...]], contexts: dict[str, tuple[str, ...]], words: str
) -> None:
    with pytest.raises(InformationError, match=words):
        Template(text, slots, contexts)


@pytest.mark.parametrize("text", ["colour", "=red", "a b=red", "{x}=red"])
def test_slots_that_can_t_be_read(text: str) -> None:
    with pytest.raises(InformationError, match="can't be read"):
        parse_slot(text)


def test_a_template_comes_back_from_its_file(tmp_path: Path) -> None:
    template = Template("a {colour} Käse: {shape}", {"colour": ("no", "yes")}, {"shape": ("<b>", "1")})
    save_template(tmp_path / "slots.yaml", template)
    assert load_template(tmp_path / "slots.yaml") == template


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("template: a\nslots: {}\nmore: 1", "more"),
        ("just text", "holds no experiment"),
        ("a: [", "can't be read as YAML"),
        ("!!python/object/apply:os.system ['true']", "can't be read as YAML"),
    ],
)
def test_files_that_hold_no_experiment(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "slots.yaml"
    path.write_text(text)
    with pytest.raises(InformationError, match=words):
        load_template(path)


def test_states_are_those_that_the_pipeline_hands_to_its_denoiser(shapes: StableDiffusionPipeline) -> None:
    _, found = states(text_reader(shapes), [PROMPT])
    embeds, _ = shapes.encode_prompt(PROMPT, "cpu", 1, False)
    np.testing.assert_allclose(found, embeds.detach().double().numpy(), atol=1e-6)


def test_words_that_mean_the_same_are_the_nearest(shapes: StableDiffusionPipeline) -> None:
    found = [each.word for each in substitutes(shapes, PROMPT, "circle", 3)]
    assert "disc" in found
    assert "tiny" in [each.word for each in substitutes(shapes, PROMPT, "small", 3)]


def test_similarity_is_the_cosine_of_the_states_themselves(shapes: StableDiffusionPipeline) -> None:
    told = calibrate(shapes, PROMPT).similarity["contextual"]
    reader = text_reader(shapes)
    ids, found = states(reader, [PROMPT])
    words = words_in(reader, ids[0])
    rows = torch.from_numpy(word_vectors(found[0], words))
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    np.testing.assert_allclose(told.values, expected.numpy(), atol=1e-9)
    assert list(told["word"].values) == [word.label for word in words]


def test_a_word_in_pieces_and_a_modifier_at_the_wrong_noun_are_warned_of(shapes: StableDiffusionPipeline) -> None:
    warnings = calibrate(shapes, "a xylophone above a blue square").warnings
    assert any("'xylophone' is spelt in" in warning for warning in warnings)
    found = calibrate(shapes, "a red circle above a blue square")
    row = found.similarity["contextual"].sel(word="blue")
    nearer = float(row.sel(other_word="circle")) > float(row.sel(other_word="square"))
    assert any("'blue' is nearer to 'circle'" in warning for warning in found.warnings) == nearer


def test_two_words_too_close_are_closer_than_unrelated_pairs(shapes: StableDiffusionPipeline) -> None:
    found = calibrate(shapes, "a red crimson circle")
    alike = float(found.similarity["contextual"].sel(word="red", other_word="crimson"))
    told = any("'red' and 'crimson' are closer" in warning for warning in found.warnings)
    assert told == (alike > found.threshold)
    assert 0 < found.threshold < 1


def test_a_text_encoder_of_another_width_is_warned_of(shapes: StableDiffusionPipeline) -> None:
    width = shapes.unet.config.cross_attention_dim
    shapes.unet.register_to_config(cross_attention_dim=width + 1)
    try:
        warnings = calibrate(shapes, "a red circle").warnings
    finally:
        shapes.unet.register_to_config(cross_attention_dim=width)
    assert any(f"the denoiser takes {width + 1}" in warning for warning in warnings)


def test_every_content_word_becomes_a_slot(shapes: StableDiffusionPipeline) -> None:
    found = propose(shapes, "a red circle above a RED square", 4)
    assert found.fields == ("red", "circle", "square")
    assert all(len(values) == 4 for values in found.slots.values())
    assert found.slots["circle"][0] == "circle"


@pytest.mark.parametrize(("prompt", "words"), [("of the", "no word"), ("a {red} circle", "braces")])
def test_prompts_without_slots_are_said(shapes: StableDiffusionPipeline, prompt: str, words: str) -> None:
    with pytest.raises(InformationError, match=words):
        propose(shapes, prompt)
