"""A trained U-Net without words as a folder that ``diffusers.DDPMPipeline.from_pretrained`` loads."""

import json
import os
import shutil
from pathlib import Path

import diffusers
from diffusers import DDPMScheduler

from denoscope.networks import UNet2D, save_unet
from denoscope.schedules import NoiseSchedule, PredictionType


def save_ddpm(
    net: UNet2D,
    schedule: NoiseSchedule,
    folder: Path,
    prediction_type: PredictionType = "epsilon",
    *,
    clip_sample: bool = True,
) -> Path:
    """Write ``model_index.json``, ``unet/`` and ``scheduler/``; returns the folder.

    The folder is written beside its place and renamed: an older one is replaced whole or not at all. ``clip_sample``
    clamps the predicted x₀ to [−1, 1], which is right for pictures and wrong for latents.

    Raises :class:`ValueError` for ε at zero terminal SNR and for a prediction that ``DDPMScheduler`` lacks, and
    :class:`OSError` when the disk refuses.
    """
    if prediction_type == "flow_prediction":
        raise ValueError("DDPMScheduler knows epsilon, sample and v_prediction, not flow_prediction")
    if prediction_type == "epsilon" and schedule.alphas_cumprod[-1] == 0:
        raise ValueError("epsilon can't be sampled from zero terminal SNR; predict v or x0")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        save_unet(net, part / "unet")
        config = schedule.to_diffusers_config() | {
            "prediction_type": prediction_type,
            "clip_sample": clip_sample,
            "timestep_spacing": "trailing" if schedule.alphas_cumprod[-1] == 0 else "leading",
        }
        DDPMScheduler.from_config(config).save_pretrained(part / "scheduler")
        index = {
            "_class_name": "DDPMPipeline",
            "_diffusers_version": diffusers.__version__,
            "scheduler": ["diffusers", "DDPMScheduler"],
            "unet": ["diffusers", "UNet2DModel"],
        }
        (part / "model_index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
