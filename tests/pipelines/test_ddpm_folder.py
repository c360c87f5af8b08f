"""A folder of ours in diffusers' DDPM pipeline: same network, same schedule, same picture as our sampler's."""

from pathlib import Path

import pytest
import torch
from diffusers import DDPMPipeline

from denoscope.networks import UNet2D, UNet2DConfig
from denoscope.pipelines.ddpm_folder import save_ddpm
from denoscope.sampling import Grid, NoiseSource, sample
from denoscope.sampling.denoisers import clipped, discrete
from denoscope.sampling.solvers import ddpm
from denoscope.sampling.spacing import Spacing, spaced_timesteps
from denoscope.schedules import NoiseSchedule, PredictionType


def small_net() -> UNet2D:
    torch.manual_seed(0)
    config = UNet2DConfig(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
    )
    net = UNet2D(config).eval()
    for parameter in net.parameters():
        parameter.data = parameter.data + 0.05 * torch.randn(parameter.shape)
    return net


class Shared(NoiseSource):
    """One generator for the batch, as the pipeline has it."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__([0, 0])
        self.generator = generator

    def draw(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self.generator)


@pytest.mark.parametrize(
    ("name", "kind", "spacing"),
    [("linear", "epsilon", "leading"), ("cosine", "v_prediction", "leading"), ("zero", "v_prediction", "trailing")],
)
def test_the_pipeline_draws_what_our_sampler_draws(
    name: str, kind: PredictionType, spacing: Spacing, tmp_path: Path
) -> None:
    schedules = {"linear": NoiseSchedule.linear(), "cosine": NoiseSchedule.cosine()}
    schedule = schedules.get(name) or NoiseSchedule.cosine().zero_terminal_snr()
    net = small_net()
    pipe = DDPMPipeline.from_pretrained(save_ddpm(net, schedule, tmp_path / "model", kind))
    pipe.set_progress_bar_config(disable=True)
    wanted = pipe(2, generator=torch.Generator().manual_seed(3), num_inference_steps=20, output_type="np").images

    generator = torch.Generator().manual_seed(3)
    z = torch.randn(2, 1, 8, 8, generator=generator)
    grid = Grid.from_timesteps(schedule, spaced_timesteps(1000, 20, spacing))
    found = sample(clipped(discrete(net, schedule, kind)), z, grid, ddpm(), seeds=Shared(generator))
    pictures = (found / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1)
    assert float(pictures.std()) > 0.05
    # "leading" ends at timestep 0: its step to no noise gives x0 in both.
    torch.testing.assert_close(pictures, torch.tensor(wanted), atol=2e-3, rtol=0)


def test_an_older_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    save_ddpm(small_net(), NoiseSchedule.linear(), folder)
    assert {path.name for path in folder.iterdir()} == {"model_index.json", "unet", "scheduler"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with pytest.raises(ValueError, match="zero terminal SNR"):
        save_ddpm(small_net(), NoiseSchedule.linear().zero_terminal_snr(), folder)
    with pytest.raises(ValueError, match="flow_prediction"):
        save_ddpm(small_net(), NoiseSchedule.linear(), folder, "flow_prediction")
    assert (folder / "model_index.json").is_file()
