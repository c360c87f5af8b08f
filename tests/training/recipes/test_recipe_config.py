"""What a recipe may say, and what a wrong one is told."""

import pytest

from denoscope.training.recipes import RecipeError, compose, recipe_names, sweep
from denoscope.training.recipes.config import differences


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_is_shipped_is_whole(name: str) -> None:
    needed = {"folder": ["data.folder=x"], "sounds": ["data.folder=x"]}
    assert compose(name, needed.get(name, [])).trainer.max_steps > 0


def test_groups_and_keys_are_overridden() -> None:
    recipe = compose("digits", ["schedule=linear", "objective=min_snr", "optim.clip=0.5", "trainer.sigma_rels=[0.05]"])
    assert (recipe.schedule.name, recipe.objective.min_snr_gamma) == ("linear", 5.0)
    assert (recipe.optim.clip, recipe.trainer.sigma_rels) == (0.5, (0.05,))


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["schedule=lin"], "Could not find 'schedule/lin'"),
        (["trainer.max_step=5"], "the recipe has no key 'trainer.max_step'"),
        (["trainer.max_steps=x"], "trainer.max_steps: .*valid integer"),
        (["trainer.max_steps=0"], "trainer.max_steps: .*greater than or equal to 1"),
        (["network=egnn"], "the network egnn can't learn from digits"),
        (["schedule=zero_snr", "objective=epsilon"], "epsilon can't be learnt at zero terminal SNR"),
        (["objective=min_snr", "objective.p2_gamma=1"], "weights for one loss"),
        (["objective=edm", "objective.p2_gamma=1"], "weight the ddpm objective, not edm"),
        (["data.kind=folder"], "a folder of pictures needs data.folder"),
        (["a b"], "can't be composed"),
        (["trainer.sigma_rels=[0.3]"], "sigma_rels.*less than 0.288"),
        (["schedule=zero_snr", "schedule.steps=1"], "zero_snr needs at least two levels"),
        (["data.kind=films"], "data: .*'fashion-mnist'"),
    ],
)
def test_what_is_wrong_is_told_by_name(overrides: list[str], told: str) -> None:
    with pytest.raises(RecipeError, match=told) as caught:
        compose("digits", overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("objective", ["edm", "learned_variance"])
def test_molecules_have_no_such_objective(objective: str) -> None:
    with pytest.raises(RecipeError, match=f"the network egnn can't learn by the {objective} objective"):
        compose("molecules", [f"objective={objective}"])


def test_an_unknown_recipe_is_told_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="there is no recipe 'films'; there are digits, fashion-mnist"):
        compose("films")


def test_a_sweep_has_every_combination() -> None:
    runs = list(sweep(["schedule=linear,cosine", "trainer.seed=range(3)", "optim.clip=1"]))
    assert len(runs) == 6
    assert runs[0] == ["schedule=linear", "trainer.seed=0", "optim.clip=1"]
    assert len({tuple(run) for run in runs}) == 6
    with pytest.raises(RecipeError, match="can't be read"):
        list(sweep(["=,"]))


def test_what_makes_another_training_and_what_does_not() -> None:
    one = compose("digits")
    assert differences(one, compose("digits", ["trainer.max_steps=9", "trainer.threads=1"])) == []
    assert differences(one, compose("digits", ["trainer.seed=1", "optim.clip=2"])) == ["optim.clip", "trainer.seed"]
    assert "network.kind" in differences(one, compose("digits", ["network=dit"]))
