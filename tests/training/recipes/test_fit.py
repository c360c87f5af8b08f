"""Whole runs, small ones: resume, folders that diffusers loads, tracking, what can go wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from diffusers import (
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiTTransformer2DModel,
    UNet2DConditionModel,
    UNet2DModel,
)
from PIL import Image

from denoscope.data.pictures import DataError
from denoscope.sampling import SamplingError
from denoscope.training.checkpoints import CheckpointError, read_tensors
from denoscope.training.draws import Draws
from denoscope.training.recipes import Recipe, RecipeError, compose, fit, load_trained
from denoscope.training.recipes.build import build_objective
from denoscope.training.recipes.captions import STATES
from denoscope.training.recipes.losses import batch_loss
from denoscope.training.recipes.modality import Examples
from denoscope.training.recipes.open import open_data
from denoscope.training.trainer import StepResult, TrainingError

QUICK = [
    "network.channels=[8,16]",
    "network.head_dim=8",
    "network.groups=4",
    "trainer.max_steps=6",
    "trainer.batch_size=8",
    "trainer.samples=4",
    "trainer.sample_every=6",
    "trainer.validate_every=6",
    "trainer.checkpoint_every=2",
    "trainer.threads=1",
    "schedule.steps=20",
]


@pytest.fixture
def quick() -> Recipe:
    """Digits, a tiny U-Net, six steps."""
    return compose("digits", QUICK)


@pytest.fixture(autouse=True)
def _fresh_accelerator() -> None:
    """Accelerate keeps its settings for the life of a process, and a test may want others."""
    AcceleratorState._reset_state(True)


class Stopped(Exception):
    """Stands for a kill."""


def stop_at(step: int) -> object:
    def report(done: StepResult) -> None:
        if done.step == step:
            raise Stopped

    return report


def test_a_run_leaves_what_it_promises(quick: Recipe, tmp_path: Path) -> None:
    out = tmp_path / "run"
    fitted = fit(quick, out)
    assert fitted.model == out / "model"
    for name in ("recipe.json", "checkpoint.safetensors", "samples.png", "grids/step_0000006.png", "model/README.md"):
        assert (out / name).stat().st_size > 0, name
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {"loss", "gradient_norm", "learning_rate", "samples_per_second"} < lines[0].keys() | {"step", "x"}
    assert len([key for key in lines[-1] if key.startswith("validation_loss_")]) == 10
    assert 0 <= fitted.figures["nearer_than_held_out"] <= 1
    assert "# A diffusion model of digits" in (out / "model" / "README.md").read_text()


def test_a_stopped_run_goes_on_as_if_unbroken(quick: Recipe, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    fit(quick, whole)
    with pytest.raises(Stopped):
        fit(quick, broken, stop_at(4))  # type: ignore[arg-type]
    seen: list[int] = []
    fit(quick, broken, lambda done: seen.append(done.step))
    assert seen == [4, 5]
    expected, told = read_tensors(whole / "checkpoint.safetensors")
    found, told_too = read_tensors(broken / "checkpoint.safetensors")
    assert told == told_too
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    steps = [
        [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (whole, broken)
    ]
    assert steps[0] == steps[1]


def test_another_recipe_in_the_same_folder_is_refused(quick: Recipe, tmp_path: Path) -> None:
    fit(quick, tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(RecipeError, match=r"holds another training \(network\.channels differ\)"):
        fit(compose("digits", [*QUICK, "network.channels=[8,24]"]), tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_a_model_without_classes_is_a_pipeline_of_diffusers(tmp_path: Path) -> None:
    fit(compose("digits", [*QUICK, "data.classes=false", "objective=epsilon"]), tmp_path)
    pipe = DDPMPipeline.from_pretrained(tmp_path / "model")
    drawn = pipe(batch_size=2, num_inference_steps=4, generator=torch.Generator().manual_seed(0), output_type="np")
    assert drawn.images.shape[:3] == (2, 8, 8)
    # The same start, the same levels, DDIM: their scheduler's loop and ours.
    trained = load_trained(tmp_path)
    scheduler = DDIMScheduler.from_config(pipe.scheduler.config, timestep_spacing="trailing")
    scheduler.set_timesteps(5)
    z = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    ours, _ = trained.sample([3], steps=5)
    sigma = float((1 - scheduler.alphas_cumprod[-1]) ** 0.5)
    z = z * sigma
    for t in scheduler.timesteps:
        with torch.no_grad():
            z = scheduler.step(pipe.unet(z, t).sample, t, z, use_clipped_model_output=True).prev_sample
    torch.testing.assert_close(ours, z, rtol=0, atol=1e-5)


def test_networks_with_classes_load_in_diffusers(quick: Recipe, tmp_path: Path) -> None:
    fit(quick, tmp_path / "unet")
    z, t, labels = torch.randn(2, 1, 8, 8), torch.tensor([3, 9]), torch.tensor([0, 10])
    theirs = UNet2DModel.from_pretrained(tmp_path / "unet" / "model", subfolder="unet").eval()
    ours = load_trained(tmp_path / "unet" / "model").network
    with torch.no_grad():
        torch.testing.assert_close(theirs(z, t, labels).sample, ours(z, t, labels), rtol=0, atol=1e-5)
    small = ["network=dit", "network.layers=1", "network.heads=2", "network.head_dim=8"]
    fit(compose("digits", [*QUICK[3:], *small]), tmp_path / "dit")
    transformer = DiTTransformer2DModel.from_pretrained(tmp_path / "dit" / "model", subfolder="transformer").eval()
    ours = load_trained(tmp_path / "dit").network
    with torch.no_grad():
        torch.testing.assert_close(transformer(z, t, labels).sample, ours(z, t, labels), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "choice",
    [
        ["objective=edm"],
        ["objective=flow", "objective.shift=3"],
        ["objective=score"],
        ["objective=learned_variance"],
        ["objective=p2"],
        ["schedule=zero_snr"],
        ["schedule=laplace", "objective=sample"],
    ],
    ids=" ".join,
)
def test_every_objective_trains_saves_and_samples(choice: list[str], tmp_path: Path) -> None:
    fit(compose("digits", [*QUICK, *choice]), tmp_path)
    trained = load_trained(tmp_path)
    first, _ = trained.sample([1, 2, 3], torch.tensor([0, 1, 2]), steps=4, solver="dpmpp_2m", guidance_scale=2.0)
    alone, _ = trained.sample([3], torch.tensor([2]), steps=4, solver="dpmpp_2m", guidance_scale=2.0, batch_size=1)
    assert bool(torch.isfinite(first).all())
    torch.testing.assert_close(first[2:], alone, rtol=0, atol=1e-5)  # same seed, another batch: the same picture


def test_a_pipeline_of_diffusers_is_sampled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    )
    DDPMPipeline(unet=unet, scheduler=DDPMScheduler(num_train_timesteps=50)).save_pretrained(tmp_path)
    drawn, _ = load_trained(tmp_path).sample([0, 1], steps=5)
    assert drawn.shape == (2, 3, 8, 8)
    assert float(drawn.abs().max()) <= 1 + 1e-6


def test_a_pipeline_with_classes_has_no_guidance(tmp_path: Path) -> None:
    """All of its embeddings are classes: none is known to stand for "not told"."""
    unet = UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
        num_class_embeds=3,
    )
    DDPMPipeline(unet=unet, scheduler=DDPMScheduler(num_train_timesteps=50)).save_pretrained(tmp_path)
    trained = load_trained(tmp_path)
    assert trained.modality.classes == ("0", "1", "2")
    assert trained.sample([0], torch.tensor([2]), steps=2)[0].shape == (1, 3, 8, 8)
    with pytest.raises(RecipeError, match="guidance needs a model trained with classes"):
        trained.sample([0], torch.tensor([2]), steps=2, guidance_scale=2.0)


def test_tensorboard_gets_the_curves(tmp_path: Path) -> None:
    fit(compose("digits", [*QUICK, "trainer.log_with=tensorboard"]), tmp_path)
    events = list(tmp_path.rglob("events.out.tfevents.*"))
    assert events
    assert b"validation_loss" in events[0].read_bytes()


def test_a_tracker_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="aim"):
        fit(compose("digits", [*QUICK, "trainer.log_with=aim"]), tmp_path)


def test_mixed_precision_trains(tmp_path: Path) -> None:
    fit(compose("digits", [*QUICK, "trainer.mixed_precision=bf16"]), tmp_path)
    assert all(value.dtype == torch.float32 for value in load_trained(tmp_path).network.parameters())


def pictures(folder: Path, count: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(count):
        Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return folder


def test_a_folder_of_ones_own_with_a_bad_file(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 6)
    (folder / "bad.png").write_bytes(b"no picture")
    mine = [f"data.folder={folder}", "data.size=9", "data.flip=true", "network.attention=[]"]
    recipe = compose("folder", [*QUICK, *mine])
    fitted = fit(recipe, tmp_path / "run")
    assert any("bad.png" in warning for warning in fitted.warnings)
    drawn, _ = load_trained(fitted.model).sample([0], steps=3)
    assert drawn.shape == (1, 3, 9, 9)  # an odd size
    with pytest.raises(DataError, match=r"bad\.png"):
        fit(recipe.model_copy(update={"data": recipe.data.model_copy(update={"bad_files": "fail"})}), tmp_path / "r2")


def test_one_picture_is_too_few(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 1)
    with pytest.raises(DataError, match="at least two are needed"):
        fit(compose("folder", [*QUICK, f"data.folder={folder}", "data.size=9"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_damaged_files_are_told(quick: Recipe, tmp_path: Path) -> None:
    fit(quick, tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="no readable checkpoint"):
        fit(quick, tmp_path)
    (tmp_path / "model" / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="is damaged"):
        load_trained(tmp_path)
    (tmp_path / "model" / "denoscope.json").write_text("{}")
    with pytest.raises(RecipeError, match="can't be read"):
        load_trained(tmp_path)
    with pytest.raises(RecipeError, match="no model trained here"):
        load_trained(tmp_path / "grids")


def test_what_can_not_be_sampled_is_told(quick: Recipe, tmp_path: Path) -> None:
    fit(quick, tmp_path)
    trained = load_trained(tmp_path)
    for options, told in (
        ({"solver": "magic"}, "there is no solver 'magic'"),
        ({"steps": 21}, "1 to 20 steps"),
        ({"spacing": "odd"}, "the spacing 'odd'"),
        ({"guidance_scale": float("nan")}, "finite"),
    ):
        with pytest.raises(RecipeError, match=told):
            trained.sample([0], torch.tensor([0]), **options)
    with pytest.raises(RecipeError, match="labels must lie in 0 to 9"):
        trained.modality.labels(1, [10])
    with torch.no_grad():
        next(trained.network.parameters()).fill_(float("nan"))
    with pytest.raises(SamplingError, match="not finite at step 0"):
        trained.sample([0], torch.tensor([0]), steps=2)


def test_a_disk_that_refuses_keeps_the_last_checkpoint(
    quick: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Stopped):
        fit(quick, tmp_path, stop_at(3))  # type: ignore[arg-type]
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("denoscope.training.checkpoints.save_file", full)
    with pytest.raises(TrainingError, match=r"No space left on device.* is kept"):
        fit(quick, tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


def test_sounds_train_and_are_written_as_waves(tmp_path: Path) -> None:
    fitted = fit(compose("tones", [*QUICK, "network.attention=[]", "data.examples=40"]), tmp_path / "run")
    assert 0 <= fitted.figures["label_read_back"] <= 1
    trained = load_trained(fitted.model)
    drawn, told = trained.sample([0, 1], torch.tensor([0, 7]), steps=3)
    files = trained.modality.write(drawn, told, tmp_path / "waves")
    assert [file.name for file in files] == ["00000.wav", "00001.wav"]
    mine = [f"data.folder={tmp_path / 'waves'}", "network.attention=[]", "data.sample_rate=8000", "data.f_max=3900"]
    mine += ["data.frames=16", "data.n_mels=16", "data.n_fft=512"]
    fit(compose("sounds", [*QUICK, *mine]), tmp_path / "mine")
    assert load_trained(tmp_path / "mine").modality.shape == (1, 16, 16)


def test_molecules_train_and_are_read_back(tmp_path: Path) -> None:
    small = ["network.width=8", "network.layers=1", "data.heavy=3", "data.conformers=1"]
    fitted = fit(compose("molecules", [*QUICK[3:], *small]), tmp_path / "run")
    assert 0 <= fitted.figures["validity"] <= 1
    trained = load_trained(fitted.model)
    drawn, told = trained.sample(range(6), solver="ddpm", steps=5)
    assert set(told["mask"].sum(1).tolist()) <= {1, 2, 3}
    alone, alone_told = trained.sample([4], solver="ddpm", steps=5)
    assert torch.equal(alone_told["mask"][0], told["mask"][4])
    torch.testing.assert_close(alone[0], drawn[4], rtol=0, atol=1e-5)
    files = trained.modality.write(drawn, told, tmp_path / "files")
    assert [file.name for file in files] == ["valid.sdf", "all.xyz"]


def test_padding_does_not_count_in_the_loss() -> None:
    """A silent network loses Σ over real atoms, divided by their number, whatever is padded."""
    recipe = compose("molecules", ["data.heavy=3", "data.conformers=1"])
    examples, modality, _ = open_data(recipe)
    clean, told = examples.batch(torch.arange(len(examples)))
    padded = torch.nn.functional.pad(clean, (0, 0, 0, 5))
    more = {"mask": torch.nn.functional.pad(told["mask"], (0, 5))}
    objective = build_objective(recipe)

    def silent(z: torch.Tensor, t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        assert float((z * ~mask[..., None]).abs().max()) == 0  # neither signal nor noise where no atom is
        assert float(z[..., :3].sum(1).abs().max()) < 1e-4
        return torch.zeros_like(z)

    plain = batch_loss(objective, silent, modality, clean, told, Draws.of(len(clean)))
    wider = batch_loss(objective, silent, modality, padded, more, Draws.of(len(clean)))
    assert float(plain.mean()) == pytest.approx(float(wider.mean()), rel=0.1)


def test_data_that_are_not_finite_are_refused() -> None:
    data = torch.zeros(3, 4)
    data[1, 2] = float("nan")
    with pytest.raises(RecipeError, match="example 1 of the data is not finite"):
        Examples(data)
    with pytest.raises(RecipeError, match="2 class_labels for 3 examples"):
        Examples(torch.zeros(3, 4), {"class_labels": torch.zeros(2)})


def test_captions_condition_on_words(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "mine", 6)
    texts = ["a red circle", "a blue square", "a red circle", "a green cross", "a red circle", "a blue square"]
    lines = "\n".join(json.dumps({"file_name": f"{index}.png", "text": text}) for index, text in enumerate(texts))
    (tmp_path / "captions.jsonl").write_text(lines)
    mine = [f"data.folder={folder}", "data.size=8", "network.attention=[false,true]", "data.held_out=0.2"]
    told = [f"data.captions={tmp_path / 'captions.jsonl'}", "data.text_encoder=shapes"]
    examples, modality, _ = open_data(compose("folder", [*QUICK, *mine, *told]))
    _, conditions = examples.batch(torch.arange(6))
    states = conditions["encoder_hidden_states"]
    assert torch.equal(states[0], states[2])
    assert not torch.equal(states[0], states[1])
    assert modality.untold is not None
    assert torch.equal(modality.untold(conditions)["encoder_hidden_states"][3], modality.tell([""])[STATES][0])  # type: ignore[misc]
    fit(compose("folder", [*QUICK, *mine, *told]), tmp_path / "run")
    with pytest.raises(RecipeError, match="has no tokenizer/"):
        fit(compose("folder", [*QUICK, *mine, told[0], f"data.text_encoder={tmp_path}"]), tmp_path / "other")
    (tmp_path / "captions.jsonl").unlink()  # a trained model needs neither the captions nor the pictures
    trained = load_trained(tmp_path / "run")
    with torch.no_grad():
        for parameter in trained.network.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    drawn, _ = trained.sample([0, 0], captions=["a red circle", "a green cross"], steps=3, guidance_scale=2.0)
    assert not torch.equal(drawn[0], drawn[1])  # the same noise, other words
    unet = UNet2DConditionModel.from_pretrained(tmp_path / "run" / "model", subfolder="unet").eval()
    ours = load_trained(tmp_path / "run").network
    z, t = torch.randn(2, 3, 8, 8), torch.tensor([3, 9])
    with torch.no_grad():
        torch.testing.assert_close(unet(z, t, states[:2]).sample, ours(z, t, states[:2]), rtol=0, atol=1e-5)
    with pytest.raises(RecipeError, match="one caption a sample"):
        trained.sample([0, 1], captions=["a red circle"])
    with pytest.raises(RecipeError, match=r"both data\.captions"):
        compose("folder", [*QUICK, *mine, told[1]])
