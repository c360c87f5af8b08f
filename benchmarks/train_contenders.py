"""The contenders of :mod:`benchmarks.train_speed`: each trains as its own library does, and takes turns.

A contender is a function of (size, channels, batch, beat). It never returns, and after every whole step calls ``beat``
with the number of its parameters.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Final, Literal

import torch
from torch import Tensor, nn

from denoscope.networks import UNet2D, UNet2DConfig
from denoscope.schedules import NoiseSchedule
from denoscope.training.allocator import keep_freed_memory
from denoscope.training.draws import Draws
from denoscope.training.objectives import ddpm
from denoscope.training.trainer import TrainerConfig, train

Name = Literal["denoscope", "diffusers", "denoising-diffusion-pytorch"]
Contender = Callable[[int, tuple[int, ...], int, Callable[[int], None]], None]

ENDLESS: Final = 1 << 30


def config(size: int, channels: tuple[int, ...]) -> UNet2DConfig:
    """The network that denoscope and diffusers both build: attention of heads 32 wide at 16×16 and below."""
    attends = [size >> level <= 16 for level in range(len(channels))]
    return UNet2DConfig(
        sample_size=size,
        block_out_channels=channels,
        down_block_types=tuple("AttnDownBlock2D" if at else "DownBlock2D" for at in attends),
        up_block_types=tuple("AttnUpBlock2D" if at else "UpBlock2D" for at in reversed(attends)),
        attention_head_dim=32,
        norm_num_groups=8,
    )


def pictures(size: int, batch: int) -> Tensor:
    """A batch in [−1, 1], the same for all."""
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


def count(network: nn.Module) -> int:
    """Numbers of its parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def denoscope(size: int, channels: tuple[int, ...], batch: int, beat: Callable[[int], None]) -> None:
    """Our trainer itself, as ``denoscope train`` starts it."""
    keep_freed_memory()
    network, clean, objective = UNet2D(config(size, channels)), pictures(size, batch), ddpm(NoiseSchedule.linear())
    parameters = count(network)

    def loss(module: nn.Module, draws: Draws) -> Tensor:
        return objective(module, clean, draws)

    train(network, loss, TrainerConfig(ENDLESS, 1e-4, batch_size=batch), report=lambda result: beat(parameters))


def diffusers(size: int, channels: tuple[int, ...], batch: int, beat: Callable[[int], None]) -> None:
    """The loop of its example ``train_unconditional.py``, with that script's defaults and moving average."""
    library = importlib.import_module("diffusers")
    optimization = importlib.import_module("diffusers.optimization")
    averages = importlib.import_module("diffusers.training_utils")
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    torch.manual_seed(0)
    model = library.UNet2DModel.from_config(config(size, channels).to_diffusers())
    ema = averages.EMAModel(
        model.parameters(), decay=0.9999, use_ema_warmup=True, inv_gamma=1.0, power=0.75,
        model_cls=library.UNet2DModel, model_config=model.config,
    )  # fmt: skip
    scheduler = library.DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-6, eps=1e-8)
    rate = optimization.get_scheduler("cosine", optimizer, num_warmup_steps=500, num_training_steps=ENDLESS)
    model, optimizer, rate = accelerator.prepare(model, optimizer, rate)
    clean = pictures(size, batch)
    model.train()
    while True:
        noise = torch.randn(clean.shape)
        timesteps = torch.randint(0, 1000, (batch,)).long()
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(scheduler.add_noise(clean, noise, timesteps), timesteps).sample, noise)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            ema.step(model.parameters())
        loss.detach().item()
        beat(count(model))


def lucidrains(size: int, channels: tuple[int, ...], batch: int, beat: Callable[[int], None]) -> None:
    """The loop of its ``Trainer``, with that class's defaults; as wide as makes its parameters as many as ours."""
    library = importlib.import_module("denoising_diffusion_pytorch")
    average = importlib.import_module("ema_pytorch").EMA
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    with torch.device("meta"):
        wanted = count(UNet2D(config(size, channels)))
    shape = tuple(width // channels[0] for width in channels)
    attends = tuple(size >> level <= 16 for level in range(len(channels)))

    def build(dim: int) -> nn.Module:
        made: nn.Module = library.Unet(dim=dim, dim_mults=shape, full_attn=attends)
        return made

    with torch.device("meta"):
        dim = min(range(8, 2 * channels[0], 2), key=lambda dim: abs(count(build(dim)) - wanted))
    torch.manual_seed(0)
    model = library.GaussianDiffusion(build(dim), image_size=size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.99))
    ema = average(model, beta=0.995, update_every=10)
    model, optimizer = accelerator.prepare(model, optimizer)
    clean = (pictures(size, batch) + 1) / 2
    while True:
        model.train()
        loss = model(clean)
        loss.item()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        beat(count(model.model))


CONTENDERS: Final[Mapping[Name, Contender]] = {
    "denoscope": denoscope,
    "diffusers": diffusers,
    "denoising-diffusion-pytorch": lucidrains,
}
