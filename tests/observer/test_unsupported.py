"""A pipeline that can't be observed says so in one sentence that names the nearest ones that can."""

import diffusers
import pytest

from denoscope import ModelError, observe
from denoscope.pipelines.adapters import ADAPTERS

NEAREST = {
    "StableDiffusion3PAGPipeline": "StableDiffusionPAGPipeline",
    "StableDiffusionControlNetPAGPipeline": "StableDiffusionControlNetPipeline",
    "StableDiffusionUpscalePipeline": "StableDiffusionPipeline",
    "LEditsPPPipelineStableDiffusion": "StableDiffusionPipeline",
    "LEditsPPPipelineStableDiffusionXL": "StableDiffusionXLPipeline",
    "PixArtSigmaPAGPipeline": "PixArtSigmaPipeline",
    "HunyuanDiTPipeline": "DiTPipeline",
    "AuraFlowPipeline": "FluxPipeline",
    "Flux2KleinKVPipeline": "Flux2KleinPipeline",
    "LDMTextToImagePipeline": "LDMPipeline",
    "KandinskyV22CombinedPipeline": "KandinskyV22Pipeline",
    "Kandinsky3Pipeline": "KandinskyV22Pipeline",
    # of no kin here
    "SanaPipeline": "",
    "Lumina2Pipeline": "",
    "QwenImagePipeline": "",
    "CogView4Pipeline": "",
}


@pytest.mark.parametrize("name", NEAREST)
def test_it_is_refused_in_one_sentence(name: str) -> None:
    kind = getattr(diffusers, name)
    with pytest.raises(ModelError) as told:
        observe(kind.__new__(kind))
    said = str(told.value)
    assert said.startswith(f"{name} is not supported yet; the nearest supported pipelines are ")
    named = said.removeprefix(f"{name} is not supported yet; the nearest supported pipelines are ").split(" (")[0]
    supported = {pipeline for adapter in ADAPTERS for pipeline in adapter.classes}
    assert len(named.split(", ")) == 3
    assert set(named.split(", ")) <= supported
    assert NEAREST[name] in named
    assert "docs/adapters.md" in said
    assert "\n" not in said
