"""What watching attention costs: time and memory of an observed call over those of the plain one, and peers' likewise.

``PYTHONPATH=src .venv-peers/bin/python -m benchmarks.attention [--model shapes|sd15] [--steps 50] [--rounds 9]``

``sd15`` is a U-Net of Stable Diffusion 1.5's architecture with random weights at 512 × 512, guided. In one process a
contender takes turns with and without watching; processes of contenders run one after the other. Memory is the peak of
the process during a call, over that of the plain call. All words, every layer, summed over steps.
"""

import gc
import importlib
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import torch
import typer
from diffusers import AutoencoderKL, DDIMScheduler, DiffusionPipeline, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

import denoscope
from denoscope.data.worlds.shapes.tokens import new_tokenizer

Model = Literal["shapes", "sd15"]
Call = Callable[[], object]
PROMPT: Final = "a red circle above a blue square"


def stable_diffusion_15() -> DiffusionPipeline:
    """The architecture of Stable Diffusion 1.5: 860 million random numbers; a text encoder of one layer."""
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    tokenizer.model_max_length = 77
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=768,
            num_attention_heads=12,
            num_hidden_layers=1,
            intermediate_size=768,
            max_position_embeddings=77,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    return StableDiffusionPipeline(
        vae=AutoencoderKL(block_out_channels=(8,) * 4, norm_num_groups=4, **_LEVELS),
        text_encoder=encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


_LEVELS: Final = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "latent_channels": 4,
}


def ours(pipe: DiffusionPipeline, call: Call) -> object:
    """All words, every layer, means over steps."""
    with denoscope.observe(pipe, keep_steps=False, guidance=False, x0=False) as watch:
        call()
    return watch.trace


def attention_map_diffusers(pipe: DiffusionPipeline, call: Call) -> object:
    """Its documented way; maps of every token, layer, step and head."""
    library = importlib.import_module("attention_map_diffusers")
    with library.AttentionCapture(pipe, relations=["image->text"]) as capture:
        call()
    return capture.compute()


CONTENDERS: Final[Mapping[str, Callable[[DiffusionPipeline, Call], object]]] = {
    "denoscope": ours,
    "attention-map-diffusers": attention_map_diffusers,
}


def peak_mib(action: Call) -> tuple[float, float]:
    """Seconds of the processor, and the process's peak memory meanwhile in MiB over that before it (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, start = _status("VmRSS"), time.process_time()
    held = action()
    taken = time.process_time() - start
    peak = _status("VmHWM") - before
    del held
    return taken, peak


def _status(key: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def measure(model: Model, contender: str, steps: int, rounds: int) -> dict[str, object]:
    """One contender's ratios, calls with and without it taking turns."""
    pipe = stable_diffusion_15() if model == "sd15" else denoscope.load("shapes", "cpu")
    pipe.set_progress_bar_config(disable=True)

    def call() -> object:
        return pipe(
            PROMPT,
            num_inference_steps=steps,
            guidance_scale=7.5 if model == "sd15" else 1.5,
            output_type="latent",
            generator=torch.Generator().manual_seed(0),
        )

    def watched() -> object:
        return CONTENDERS[contender](pipe, call)

    call()
    turns = [(peak_mib(call), peak_mib(watched)) for _ in range(rounds)]
    ratios = [with_it[0] / plain[0] for plain, with_it in turns]
    return {
        "contender": contender,
        "seconds_plain": statistics.median(plain[0] for plain, _ in turns),
        "time_ratio": statistics.median(ratios),
        "time_ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
        "extra_mib": statistics.median(with_it[1] - plain[1] for plain, with_it in turns),
    }


def main(
    model: Annotated[str, typer.Option(help="shapes, or sd15: that architecture with random weights.")] = "shapes",
    steps: Annotated[int, typer.Option(min=1)] = 20,
    rounds: Annotated[int, typer.Option(min=2)] = 9,
    only: Annotated[str, typer.Option(help="One contender.")] = "",
) -> None:
    """Measure, and print JSON. Contenders that are not installed are named."""
    if model not in ("shapes", "sd15"):
        raise typer.BadParameter(f"there is no model {model!r}: shapes, sd15")
    torch.set_num_threads(1)
    found: list[dict[str, object]] = []
    for contender in [only] if only else CONTENDERS:
        try:
            found.append(measure("sd15" if model == "sd15" else "shapes", contender, steps, rounds))
        except ModuleNotFoundError as error:
            found.append({"contender": contender, "missing": str(error)})
        gc.collect()
    print(json.dumps({"model": model, "steps": steps, "rounds": rounds, "threads": 1, "found": found}, indent=2))


if __name__ == "__main__":
    typer.run(main)
