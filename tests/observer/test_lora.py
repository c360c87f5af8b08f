"""Low-rank additions to queries and keys are part of what is seen."""

from functools import partial
from pathlib import Path

import pytest
import torch
import xarray as xr
from diffusers import DiffusionPipeline
from family_calls import call
from family_layouts import LAYOUTS
from held_against import check_places, check_words
from tiny_families import loaded, saved
from torch import Tensor, nn

from denoscope import observe
from denoscope.pipelines import adapter_for

PROJECTIONS = ("to_q", "to_k", "add_q_proj", "add_k_proj", "to_qkv_mlp_proj")


class LowRank(nn.Module):
    """Wx + s·BAx, in the place of a linear layer, which it keeps."""

    def __init__(self, base_layer: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base_layer, self.scale = base_layer, scale
        self.down = nn.Linear(base_layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base_layer.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x) + self.scale * self.up(self.down(x))
        return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {name: saved(name, folder / name) for name in ("sd", "sdxl", "sd3", "flux", "flux2", "pixart-sigma")}


def trace_of(name: str, pipe: DiffusionPipeline) -> xr.Dataset:
    with observe(pipe) as watch:
        call(name, pipe)
    return watch.trace


@pytest.mark.parametrize("name", ["sd", "sdxl", "sd3", "flux", "flux2", "pixart-sigma"])
def test_substituted_projections_are_seen(name: str, folders: dict[str, Path]) -> None:
    """Layers put there by hand, as peft puts its; no file of weights is loaded, for which diffusers needs peft."""
    torch.manual_seed(1)
    pipe, merged = loaded(name, folders[name]), loaded(name, folders[name])
    plain = trace_of(name, pipe)
    for layer, other in zip(
        adapter_for(pipe).layers(pipe, "cross").values(),
        adapter_for(merged).layers(merged, "cross").values(),
        strict=True,
    ):
        for part in PROJECTIONS:
            linear = getattr(layer, part, None)
            if isinstance(linear, nn.Linear):
                adapted = LowRank(linear, rank=4, scale=2.0).eval()
                setattr(layer, part, adapted)
                with torch.no_grad():
                    getattr(other, part).weight += adapted.scale * adapted.up.weight @ adapted.down.weight
    draw = partial(call, name, pipe)
    check_words(pipe, draw, LAYOUTS[name])
    check_places(pipe, draw, LAYOUTS[name])
    seen = trace_of(name, pipe)
    xr.testing.assert_allclose(seen.attention, trace_of(name, merged).attention, atol=1e-5)
    assert float(abs(seen.attention - plain.attention).max()) > 1e-3


@pytest.mark.parametrize("name", ["sd", "sdxl", "flux"])
def test_loaded_weights_are_seen(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="diffusers loads LoRA with peft alone")
    torch.manual_seed(1)
    pipe = loaded(name, folders[name])
    plain = trace_of(name, pipe)
    denoiser = adapter_for(pipe).denoiser_name
    adapted = getattr(pipe, denoiser)
    adapted.add_adapter(
        peft.LoraConfig(r=4, lora_alpha=8, init_lora_weights=False, target_modules=["to_q", "to_k", "add_k_proj"])
    )
    pipe.save_lora_weights(tmp_path, **{f"{denoiser}_lora_layers": peft.get_peft_model_state_dict(adapted)})
    pipe = loaded(name, folders[name])
    pipe.load_lora_weights(tmp_path)
    draw = partial(call, name, pipe)
    check_words(pipe, draw, LAYOUTS[name])
    apart = trace_of(name, pipe)
    assert float(abs(apart.attention - plain.attention).max()) > 1e-3
    pipe.fuse_lora()
    xr.testing.assert_allclose(trace_of(name, pipe).attention, apart.attention, atol=1e-5)
    pipe.unfuse_lora()
    pipe.unload_lora_weights()
    xr.testing.assert_allclose(trace_of(name, pipe).attention, plain.attention, atol=1e-5)
