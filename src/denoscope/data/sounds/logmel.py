"""Log-mel spectrograms, and the way back to a wave by Griffin and Lim's algorithm."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from denoscope.data.errors import DataError


@dataclass(frozen=True, slots=True)
class LogMel:
    """A spectrogram of ``n_mels`` bands in decibels, scaled so that ``floor_db`` is −1 and full scale is 1.

    Bands are triangles of peak 1, at equal distances on the mel scale of O'Shaughnessy (1987), 2595·log₁₀(1 + f/700).
    0 dB is the magnitude of a sine of amplitude 1.

    Raises :class:`DataError` when the values don't fit together.

    >>> LogMel().encode(torch.zeros(2, 3968)).shape
    torch.Size([2, 1, 32, 32])
    """

    sample_rate: int = 8000
    n_fft: int = 512
    hop_length: int = 128
    n_mels: int = 32
    f_min: float = 60.0
    f_max: float = 3800.0
    floor_db: float = -80.0

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if not 0 <= self.f_min < self.f_max <= self.sample_rate / 2:
            raise DataError(
                f"f_min {self.f_min:g} and f_max {self.f_max:g} must rise, up to half of {self.sample_rate} Hz"
            )
        if min(self.n_fft, self.hop_length, self.n_mels) < 1 or self.hop_length > self.n_fft // 2:
            raise DataError(f"hop_length {self.hop_length} must be positive and at most half of n_fft {self.n_fft}")
        if not self.floor_db < 0:
            raise DataError(f"floor_db must be below 0, not {self.floor_db:g}")
        if bool((self.filters().sum(1) == 0).any()):
            raise DataError(f"{self.n_mels} bands are too many for n_fft {self.n_fft}: some hold no frequency")

    def samples(self, frames: int) -> int:
        """The length of waves whose spectrogram has this many frames."""
        return (frames - 1) * self.hop_length

    def filters(self) -> Tensor:
        """What each band takes of each frequency: ``(n_mels, n_fft // 2 + 1)`` float64."""
        return _filters(self.sample_rate, self.n_fft, self.n_mels, self.f_min, self.f_max)

    def encode(self, waves: Tensor) -> Tensor:
        """Waves ``(N, samples)`` to ``(N, 1, n_mels, 1 + samples // hop_length)`` float32 in [−1, 1]."""
        mel = torch.einsum("mf,nft->nmt", self.filters().to(waves), self._stft(waves).abs())
        return self._scaled(20 * mel.clamp(min=1e-10).log10())[:, None]

    def decode(self, spectrograms: Tensor, *, iterations: int = 40, seed: int = 0) -> Tensor:
        """Spectrograms ``(N, 1, n_mels, frames)`` to waves ``(N, samples(frames))`` that have about them.

        Magnitudes are the non-negative ones that the bands could come from (multiplicative updates, Lee & Seung 2001),
        phases those of the fast Griffin–Lim algorithm (Perraudin et al. 2013), from random ones drawn by ``seed``, the
        same for every spectrogram.
        """
        decibels = (spectrograms[:, 0].float().clamp(-1, 1) - 1) / 2 * -self.floor_db
        mel = torch.where(decibels <= self.floor_db, 0.0, 10 ** (decibels / 20))
        magnitude = self._magnitudes(mel)
        start = torch.rand(magnitude.shape[1:], generator=torch.Generator().manual_seed(seed))
        phase = torch.exp(2j * torch.pi * start).expand(magnitude.shape)
        before = torch.zeros_like(phase)
        length = self.samples(spectrograms.shape[-1])
        for _ in range(iterations):
            rebuilt = self._stft(self._istft(magnitude * phase, length))
            ahead = rebuilt - 0.99 / 1.99 * before
            before = rebuilt
            phase = ahead / ahead.abs().clamp(min=1e-12)
        return self._istft(magnitude * phase, length).clamp(-1, 1)

    def _magnitudes(self, mel: Tensor, iterations: int = 50) -> Tensor:
        filters = self.filters().float()
        found = torch.einsum("mf,nmt->nft", filters / filters.sum(1, keepdim=True), mel)
        upper = torch.einsum("mf,nmt->nft", filters, mel)
        gram = filters.T @ filters
        for _ in range(iterations):
            # Kept off zero: numbers below the normal range make every operation ten times slower.
            found = (found * upper / torch.einsum("fg,ngt->nft", gram, found).clamp(min=1e-12)).clamp(min=1e-12)
        return found

    def _stft(self, waves: Tensor) -> Tensor:
        """Complex ``(N, n_fft // 2 + 1, frames)``, scaled so that a sine of amplitude 1 has magnitude 1."""
        window = torch.hann_window(self.n_fft, dtype=waves.dtype)
        spectrum: Tensor = torch.stft(waves, self.n_fft, self.hop_length, window=window, return_complex=True)
        return spectrum * (2 / window.sum())

    def _istft(self, spectrum: Tensor, length: int) -> Tensor:
        window = torch.hann_window(self.n_fft)
        spectrum = spectrum * (window.sum() / 2)
        wave: Tensor = torch.istft(spectrum, self.n_fft, self.hop_length, window=window, length=length)
        return wave

    def _scaled(self, decibels: Tensor) -> Tensor:
        return (1 - 2 * decibels / self.floor_db).clamp(-1, 1).float()


@lru_cache(maxsize=8)
def _filters(sample_rate: int, n_fft: int, n_mels: int, f_min: float, f_max: float) -> Tensor:
    ends = torch.tensor([f_min, f_max], dtype=torch.float64)
    low, high = 2595 * torch.log10(1 + ends / 700)
    points = 700 * (10 ** (torch.linspace(float(low), float(high), n_mels + 2, dtype=torch.float64) / 2595) - 1)
    frequencies = torch.arange(n_fft // 2 + 1, dtype=torch.float64) * sample_rate / n_fft
    left, middle, right = points[:-2, None], points[1:-1, None], points[2:, None]
    rising, falling = (frequencies - left) / (middle - left), (right - frequencies) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0)
