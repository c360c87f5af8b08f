"""CLIP and DINOv2, from folders that transformers saved."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer, CLIPModel, Dinov2Model
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from denoscope.metrics.extraction import Extractor
from denoscope.metrics.frechet import FeatureError
from denoscope.metrics.image_sets import Pixels

CLIP: Final = "openai/clip-vit-large-patch14-336"
DINOV2: Final = "facebook/dinov2-large"
Model = TypeVar("Model", CLIPModel, Dinov2Model)
_CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
_IMAGENET_STD: Final = (0.229, 0.224, 0.225)


def load_clip(weights: Path | None = None, device: str = "cpu") -> Extractor:
    """CLIP's picture features, of length 1, as CMMD and CLIP score take them: ``pool`` ``(B, d)``.

    The middle square, Pillow's bicubic of levels, to the size that the model was trained at. ``weights`` is a folder
    with the model; without one :data:`CLIP` from the hub's cache, or the hub. Raises :class:`FeatureError` when there
    is none.
    """
    model, origin = _loaded(CLIPModel, weights, CLIP)
    size = int(model.config.vision_config.image_size)
    model.to(device)

    def forward(x: Tensor) -> dict[str, Tensor]:
        seen = model.vision_model(pixel_values=x).pooler_output
        return {"pool": torch.nn.functional.normalize(model.visual_projection(seen), dim=-1)}

    def prepare(pixels: Pixels) -> Tensor:
        height, width = pixels.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        return _normalised(pixels[top : top + side, left : left + side], size, _CLIP_MEAN, _CLIP_STD)

    identity = {"weights": origin, "resize": f"middle square, bicubic to {size} × {size}", "dtype": "float32"}
    return Extractor("clip", identity, prepare, forward)


def load_dinov2(weights: Path | None = None, device: str = "cpu") -> Extractor:
    """DINOv2's class token after the last norm, for FD-DINOv2 (Stein et al. 2023): ``pool`` ``(B, d)``.

    The whole picture, Pillow's bicubic of levels, to 224 × 224. ``weights`` as for :func:`load_clip`.
    """
    model, origin = _loaded(Dinov2Model, weights, DINOV2)
    model.to(device)
    identity = {"weights": origin, "resize": "bicubic to 224 × 224", "dtype": "float32"}

    def forward(x: Tensor) -> dict[str, Tensor]:
        return {"pool": model(pixel_values=x).last_hidden_state[:, 0]}

    return Extractor(
        "dinov2", identity, lambda pixels: _normalised(pixels, 224, _IMAGENET_MEAN, _IMAGENET_STD), forward
    )


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """CLIP's features of texts, of length 1, ``(n, d)``; ``cut`` are the numbers of those that were too long."""

    values: NDArray[np.float32]
    cut: tuple[int, ...]


def text_features(texts: list[str], weights: Path | None = None, device: str = "cpu", batch: int = 64) -> TextFeatures:
    """CLIP's features of texts, by the same model as :func:`load_clip`.

    Texts of more than 77 tokens lose their end, not the sign that ends them: without it two long texts would have one
    embedding.
    """
    model, _ = _loaded(CLIPModel, weights, CLIP)
    model.to(device)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(weights or CLIP))
    most = int(model.config.text_config.max_position_embeddings)
    found, cut = [], []
    for start in range(0, len(texts), batch):
        some = texts[start : start + batch]
        lengths = [len(ids) for ids in tokenizer(some)["input_ids"]]
        cut += [start + number for number, length in enumerate(lengths) if length > most]
        tokens = tokenizer(some, padding=True, truncation=True, max_length=most, return_tensors="pt").to(device)
        with torch.inference_mode():
            seen = model.text_model(**tokens).pooler_output
            found.append(torch.nn.functional.normalize(model.text_projection(seen), dim=-1).float().cpu().numpy())
    return TextFeatures(np.concatenate(found), tuple(cut))


def _normalised(pixels: Pixels, side: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    image = Image.fromarray(pixels)
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BICUBIC)
    levels = np.asarray(image, np.float32) / 255
    values = (levels - np.array(mean, np.float32)) / np.array(std, np.float32)
    return torch.from_numpy(values).permute(2, 0, 1).contiguous()


def _loaded(kind: type[Model], weights: Path | None, usual: str) -> tuple[Model, str]:
    try:
        model = kind.from_pretrained(str(weights or usual), use_safetensors=True)
    except (OSError, ValueError) as error:
        raise FeatureError(
            f"there is no {kind.__name__} at {str(weights or usual)!r}: give a folder that transformers saved"
        ) from error
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().float().cpu().numpy().tobytes())
    return model.eval().requires_grad_(False), digest.hexdigest()
