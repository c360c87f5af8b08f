"""CLIP and DINOv2 from folders, against transformers' own way through them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPModel, Dinov2Config, Dinov2Model

import denoscope
from denoscope.metrics import FeatureError, gaussian_mmd
from denoscope.metrics.evaluation import evaluate, outputs_of
from denoscope.metrics.extraction import extract
from denoscope.metrics.extractors.known import extractor
from denoscope.metrics.extractors.language import text_features
from denoscope.metrics.image_sets import open_images

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    tokenizer = denoscope.load("shapes", "cpu").tokenizer
    tokenizer.save_pretrained(folder)
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 16}
    text |= {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    vision = {**SMALL, "image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)).save_pretrained(folder)
    return folder


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(6):
        noise = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    return tmp_path


def test_pictures_and_texts_by_clip(clip: Path, pictures: Path) -> None:
    with open_images(pictures) as images:
        found = extract(images, {"clip": (extractor("clip", weights=clip), ["pool"])})
    model = CLIPModel.from_pretrained(clip)
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    seen = []
    for name in found.names:
        middle = Image.open(pictures / name).crop((10, 0, 50, 40)).resize((32, 32), Image.Resampling.BICUBIC)
        values = (np.asarray(middle) / 255 - mean) / std
        seen.append(torch.from_numpy(values).permute(2, 0, 1).float())
    texts = ["a red circle", "a blue square above a green cross"] * 3
    told = text_features(texts, clip)
    tokenizer = denoscope.load("shapes", "cpu").tokenizer
    for row, text in enumerate(texts[:2]):
        tokens = tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            whole = model(**tokens, pixel_values=torch.stack(seen))
        np.testing.assert_allclose(found.features["clip"]["pool"], whole.image_embeds, atol=1e-5)
        np.testing.assert_allclose(told.values[row], whole.text_embeds[0], atol=1e-5)
    (score,) = evaluate(found, None, ["clip_score"], texts=told.values)
    cosines = (found.features["clip"]["pool"] * told.values).sum(1)
    assert score.value == pytest.approx(100 * np.maximum(cosines, 0).mean(), rel=1e-5)
    (cmmd,) = evaluate(found, found, ["cmmd"])
    assert cmmd.value == pytest.approx(0, abs=1e-9)
    assert gaussian_mmd(found.features["clip"]["pool"], -found.features["clip"]["pool"]) > 10
    with pytest.raises(FeatureError, match="compares pictures with their prompts"):
        evaluate(found, None, ["clip_score"])


def test_long_texts_keep_their_end(clip: Path) -> None:
    long = " ".join(["a red circle above a blue square"] * 3)
    told = text_features([f"{long} large", f"striped {long}", "a red circle"], clip)
    assert told.cut == (0, 1)
    assert np.abs(told.values[0] - told.values[1]).max() > 1e-3


def test_dinov2(pictures: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    Dinov2Model(Dinov2Config(**SMALL, image_size=28, patch_size=14)).save_pretrained(tmp_path / "dino")
    with open_images(pictures) as images:
        found = extract(images, {"dinov2": (extractor("dinov2", weights=tmp_path / "dino"), ["pool"])})
    resized = Image.open(pictures / "0.png").resize((224, 224), Image.Resampling.BICUBIC)
    values = (np.asarray(resized) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    with torch.no_grad():
        model = Dinov2Model.from_pretrained(tmp_path / "dino")
        seen = model(pixel_values=torch.from_numpy(values).permute(2, 0, 1)[None].float())
    np.testing.assert_allclose(found.features["dinov2"]["pool"][0], seen.last_hidden_state[0, 0], atol=1e-4)


def test_metrics_that_have_a_network_of_their_own() -> None:
    wanted = outputs_of(["fid", "fd_dinov2", "cmmd", "is", "sfid"], "inception")
    assert wanted == {"inception": ["pool", "logits", "spatial"], "dinov2": ["pool"], "clip": ["pool"]}
