"""Pipelines without text: DDPM, DDIM, latent diffusion, DiT. Self-attention, features and predictions."""

from collections.abc import Mapping

from diffusers import DiffusionPipeline
from torch import nn

from denoscope.pipelines.adapters.base import Adapter, Attends, Branch, DenoiserCall, in_calling_order


class UnconditionalAdapter(Adapter):
    """``UNet2DModel`` in a pipeline: ``attentions.N`` at some levels."""

    name = "unconditional"
    classes = ("DDPMPipeline", "DDIMPipeline", "LDMPipeline", "LDMSuperResolutionPipeline")
    encode_method = None
    parts = ()
    feature_layers = ("down_blocks.*", "mid_block", "up_blocks.*")

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """Self-attention alone."""
        if attends == "cross":
            return {}
        found = self.denoiser(pipe).named_modules()
        return in_calling_order({name: layer for name, layer in found if hasattr(layer, "to_q")})


class DiTAdapter(Adapter):
    """DiT (Peebles and Xie 2023): classes by adaLN; the batch is [class, no class]."""

    name = "dit"
    classes = ("DiTPipeline",)
    denoiser_name = "transformer"
    sample_name = "hidden_states"
    encode_method = None
    parts = ()
    feature_layers = ("transformer_blocks.*",)

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """``attn1``; there is no text."""
        return {} if attends == "cross" else super().layers(pipe, attends)

    def branches(self, pipe: DiffusionPipeline, call: DenoiserCall, rows: int) -> Mapping[Branch, slice]:
        """Guided when the last label is the one that stands for none."""
        labels = call.tensor("class_labels").reshape(-1)
        if int(labels[-1]) != int(pipe.transformer.config.num_embeds_ada_norm):
            return {"cond": slice(0, rows)}
        return {"cond": slice(0, rows // 2), "uncond": slice(rows // 2, rows)}
