"""Sound files, spectrograms against SciPy, the way back, and the checker of tones."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from denoscope.data.errors import DataError
from denoscope.data.sounds import LogMel, SoundSet, load_sounds, write_wave
from denoscope.data.worlds.tones import KINDS, SAMPLE_RATE, read_kind, tone, tones


def sine(frequency: float, rate: int = 8000, seconds: float = 0.496, amplitude: float = 0.5) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * frequency * np.arange(int(rate * seconds)) / rate)


def strongest(wave: np.ndarray, rate: int = 8000) -> float:
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave)), 1 << 16))
    return float(spectrum.argmax() * rate / (1 << 16))


def test_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    (tmp_path / "high").mkdir()
    soundfile.write(tmp_path / "low" / "a.wav", sine(200, 44100, 1.0), 44100)
    soundfile.write(tmp_path / "low" / "short.flac", sine(300, 8000, 0.1), 8000)
    stereo = np.stack([sine(1000, 16000, 0.6), sine(1000, 16000, 0.6)], 1)
    soundfile.write(tmp_path / "high" / "b.ogg", stereo, 16000)
    (tmp_path / "high" / "bad.wav").write_bytes(b"no sound")
    soundfile.write(tmp_path / "high" / "empty.wav", np.zeros(0), 8000)
    soundfile.write(tmp_path / "high" / "nan.wav", np.full(800, np.nan), 8000, subtype="FLOAT")
    found = load_sounds(tmp_path, 8000, 4000)
    assert found.names == ("high/b.ogg", "low/a.wav", "low/short.flac")
    assert (found.classes, found.labels.tolist()) == (("high", "low"), [0, 1, 1])  # type: ignore[union-attr]
    assert [name for name, _ in found.skipped] == ["high/bad.wav", "high/empty.wav", "high/nan.wav"]
    assert strongest(found.waves[1].numpy()) == pytest.approx(200, abs=1)  # resampled from 44,100 Hz
    assert strongest(found.waves[0].numpy()) == pytest.approx(1000, abs=1)
    assert float(found.waves[2, 801:].abs().max()) == 0  # padded with silence
    with pytest.raises(DataError, match=r"bad\.wav can't be read"):
        load_sounds(tmp_path, 8000, 4000, bad_files="fail")
    with pytest.raises(DataError, match="is no folder"):
        load_sounds(tmp_path / "nowhere", 8000, 4000)
    with pytest.raises(DataError, match="holds 1 sounds"):
        load_sounds(tmp_path / "high", 8000, 4000)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    wave = torch.from_numpy(sine(440)).float()
    for name in ("a.wav", "b.wav"):
        write_wave(tmp_path / name, wave, 8000)
    torch.testing.assert_close(load_sounds(tmp_path, 8000, len(wave)).waves[0], wave, rtol=0, atol=1 / 32000)
    with pytest.raises(DataError, match="not finite"):
        write_wave(tmp_path / "c.wav", wave * float("nan"), 8000)


def test_a_set_that_does_not_fit_is_refused() -> None:
    waves = torch.zeros(2, 10)
    with pytest.raises(DataError, match="1 names for 2 sounds"):
        SoundSet(waves, 8000, ("a",))
    with pytest.raises(DataError, match="must be finite"):
        SoundSet(waves * float("nan"), 8000, ("a", "b"))
    with pytest.raises(DataError, match="labels must number 1 classes"):
        SoundSet(waves, 8000, ("a", "b"), torch.tensor([0, 1]), ("x",))


def test_bands_against_their_formula() -> None:
    filters = LogMel(n_mels=10, f_min=100, f_max=3000).filters()
    mel = np.linspace(2595 * math.log10(1 + 100 / 700), 2595 * math.log10(1 + 3000 / 700), 12)
    points = 700 * (10 ** (mel / 2595) - 1)
    for band in range(10):
        for place in (40, 64, 100, 170):
            hertz = place * 8000 / 512
            wanted = np.interp(hertz, points[band : band + 3], [0, 1, 0], left=0, right=0)
            assert float(filters[band, place]) == pytest.approx(wanted, abs=1e-12)


def test_spectrogram_against_scipy() -> None:
    scale = LogMel()
    wave = np.random.default_rng(0).normal(size=3968) * 0.1
    window = hann(512, sym=False)
    transform = ShortTimeFFT(window, 128, 8000, fft_mode="onesided", mfft=512, phase_shift=None)
    # Frames are centred on multiples of the hop, and the ends are reflected.
    padded = np.pad(wave, 256, mode="reflect")
    frames = np.abs(transform.stft(padded, p0=2, p1=34)) * (2 / window.sum())
    wanted = 1 - 2 * (20 * np.log10(scale.filters().numpy() @ frames)) / -80
    found = scale.encode(torch.from_numpy(wave)[None])[0, 0].numpy()
    assert found.shape == (32, 32)
    np.testing.assert_allclose(found, wanted.clip(-1, 1), atol=1e-5)


def test_a_sine_of_full_scale_is_nearly_one_in_its_band() -> None:
    scale = LogMel()
    centre = float((scale.filters()[20] * torch.arange(257)).sum() / scale.filters()[20].sum()) * 8000 / 512
    picture = scale.encode(torch.from_numpy(sine(centre, amplitude=1.0)).float()[None])[0, 0]
    assert int(picture[:, 16].argmax()) == 20
    assert float(picture[20, 16]) == pytest.approx(1, abs=0.1)
    assert float(scale.encode(torch.zeros(1, 3968)).max()) == -1


@pytest.mark.parametrize("frequency", [220.0, 700.0, 2100.0])
def test_back_to_a_wave_keeps_pitch_and_loudness(frequency: float) -> None:
    """To the nearest bands, which are 60 to 160 Hz apart."""
    scale = LogMel()
    spectrogram = scale.encode(torch.from_numpy(sine(frequency)).float()[None])
    wave = scale.decode(spectrogram)
    assert wave.shape == (1, 3968)
    assert strongest(wave[0].numpy()) == pytest.approx(frequency, rel=0.06, abs=30)
    assert float((scale.encode(wave) - spectrogram).abs().mean()) < 0.1
    assert torch.equal(wave, scale.decode(spectrogram))


def test_a_scale_that_does_not_fit_is_refused() -> None:
    for wrong, told in (
        ({"f_max": 5000.0}, "up to half of 8000"),
        ({"n_mels": 200}, "too many for n_fft"),
        ({"hop_length": 300}, "at most half"),
        ({"floor_db": 0.0}, "below 0"),
    ):
        with pytest.raises(DataError, match=told):
            LogMel(**wrong)


def test_tones_depend_on_their_number_alone() -> None:
    assert torch.equal(tones(4, seed=3).waves, tones(16, seed=3).waves[:4])
    assert not torch.equal(tones(2, seed=3).waves, tones(2, seed=4).waves)
    assert float(tones(16).waves.abs().max()) <= 0.9


def test_the_checker_reads_every_kind_also_after_the_way_there_and_back() -> None:
    found = tones(80, seed=5)
    labels = [KINDS[label] for label in found.labels.tolist()]  # type: ignore[union-attr]
    assert [read_kind(wave) for wave in found.waves.numpy()] == labels
    scale = LogMel()
    back = [read_kind(wave) for wave in scale.decode(scale.encode(found.waves)).numpy()]
    assert sum(one == other for one, other in zip(back, labels, strict=True)) >= 78


def test_the_checker_says_when_it_can_not_tell() -> None:
    assert read_kind(np.zeros(3968)) is None
    assert read_kind(np.full(3968, np.nan)) is None
    assert read_kind(sine(420)) is None  # between low and middle
    assert read_kind(tone("chord", np.random.default_rng(0))[::2], SAMPLE_RATE // 2) == "chord"
