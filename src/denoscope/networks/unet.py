"""A text-conditional U-Net whose weights and outputs are those of diffusers' ``UNet2DConditionModel``."""

from torch import Tensor
from torch.nn import functional

from denoscope.networks.config import UNetConfig
from denoscope.networks.levels import Bricks, Levels


class UNet2DCondition(Levels):
    """The denoiser of latent diffusion (Ronneberger et al. 2015, Ho et al. 2020, Rombach et al. 2022).

    Its state dict has diffusers' keys, so that :func:`~denoscope.networks.save_unet` writes a folder that
    ``diffusers.UNet2DConditionModel.from_pretrained`` loads, and gives the same output there. A new network
    returns zero: the last convolution starts at zero, and so do the last layers of all residual branches.

    >>> import torch
    >>> net = UNet2DCondition(
    ...     UNetConfig(
    ...         block_out_channels=(8, 16),
    ...         down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    ...         up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ...         norm_num_groups=4,
    ...         attention_head_dim=2,
    ...         cross_attention_dim=6,
    ...     )
    ... )
    >>> net(torch.randn(1, 4, 7, 9), 10, torch.randn(1, 3, 6)).shape
    torch.Size([1, 4, 7, 9])
    """

    def __init__(self, config: UNetConfig) -> None:
        """Draw initial weights for ``config``."""
        super().__init__()
        self.config = config
        channels = config.block_out_channels
        time_width = self.begin(config.in_channels, channels[0])
        bricks = [
            Bricks(
                time_width=time_width,
                context_channels=config.cross_attention_dim,
                heads=heads,
                groups=config.norm_num_groups,
                eps=config.norm_eps,
                dropout=config.dropout,
                linear=config.use_linear_projection,
            )
            for heads in config.heads
        ]
        self.build(
            bricks,
            channels,
            config.layers_per_block,
            [block == "CrossAttnDownBlock2D" for block in config.down_block_types],
            [block == "CrossAttnUpBlock2D" for block in reversed(config.up_block_types)],
        )
        self.end(config.out_channels, config.norm_num_groups, config.norm_eps)

    def forward(self, sample: Tensor, timestep: Tensor | float, encoder_hidden_states: Tensor) -> Tensor:
        """Predict, from noisy latents, what the network was trained for (noise, v or the clean latents).

        ``sample`` is ``(B, in_channels, H, W)``, any size; ``timestep`` one number for all or ``(B,)``, in
        training steps, fractions allowed; ``encoder_hidden_states`` is ``(B, M, cross_attention_dim)``, one
        row a token. Returns ``(B, out_channels, H, W)``.
        """
        # Every residual block starts with the SiLU of the embedding: done once for all of them.
        time = functional.silu(self.time_embedding(self.sinusoids(timestep, sample)))
        return self.last(self.through(self.conv_in(sample), time, encoder_hidden_states))
