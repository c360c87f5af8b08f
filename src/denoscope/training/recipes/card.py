"""The model card of a trained model: what it is, how it was trained, what was measured."""

from denoscope._version import __version__
from denoscope.training.recipes.config import Recipe
from denoscope.training.recipes.modality import Modality
from denoscope.training.recipes.validation import LEVELS


def write_card(recipe: Recipe, modality: Modality, examples: int, figures: dict[str, float]) -> str:
    """The text of ``README.md``, in Markdown with Hugging Face's header."""
    kind = f", {recipe.objective.prediction_type}" if recipe.objective.name == "ddpm" else ""
    settings = recipe.trainer
    lines = [
        "---",
        "library_name: diffusers",
        "tags: [diffusion, denoscope]",
        "---",
        "",
        f"# A diffusion model of {recipe.data.kind}",
        "",
        f"Trained with denoscope {__version__} on {examples:,} examples, each of shape {modality.shape}.",
        "",
        "| | |",
        "|---|---|",
        f"| network | {recipe.network.kind} |",
        f"| classes | {len(modality.classes) or 'none'} |",
        f"| schedule | {recipe.schedule.name}, {recipe.schedule.steps} levels |",
        f"| objective | {recipe.objective.name}{kind} |",
        f"| steps | {settings.max_steps:,} of {settings.batch_size} samples |",
        f"| learning rate | {recipe.optim.learning_rate:g}, cosine, {recipe.optim.warmup} steps of warm-up |",
        f"| moving average | {settings.ema_decay:g}; these weights are the average |",
        f"| seed | {settings.seed} |",
        "",
        "## Measured",
        "",
        "| figure | value |",
        "|---|---|",
    ]
    lines += [f"| {name} | {value:.4g} |" for name, value in figures.items() if not name.startswith("validation")]
    levels = [figures[key] for index in range(LEVELS) if (key := f"validation_loss_{index}") in figures]
    if levels:
        lines += ["", "Loss on held-out examples by tenth of the noise levels, cleanest first:", ""]
        lines += [" · ".join(f"{value:.4f}" for value in levels)]
    lines += ["", "## Use", "", "```", "denoscope sample FOLDER -n 64", "```", ""]
    if modality.classes:
        lines += [
            f"`class_labels` number the classes; {len(modality.classes)} stands for none (classifier-free guidance). "
            "`DDPMPipeline` of diffusers passes no classes: load the network with `UNet2DModel.from_pretrained`.",
            "",
            *(f"{index}. {name}" for index, name in enumerate(modality.classes)),
            "",
        ]
    return "\n".join(lines)
