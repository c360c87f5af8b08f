"""Recipes by name, put together of config groups, with ``key=value`` overrides: Hydra's part."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import product

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from denoscope.training.recipes.config import Recipe, RecipeError, parse

_MODULE = "denoscope.training.recipes.conf"


def recipe_names() -> tuple[str, ...]:
    """The names of the recipes that are shipped.

    >>> "fashion-mnist" in recipe_names()
    True
    """
    names = [path.name for path in files(_MODULE).iterdir()]
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def compose(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe ``name`` with overrides in Hydra's grammar: ``schedule=linear``, ``trainer.max_steps=20000``.

    Raises :class:`RecipeError` for an unknown recipe, group, option or key, and for a value that can't be.

    >>> compose("digits", ["trainer.max_steps=7"]).trainer.max_steps
    7
    """
    if name not in recipe_names():
        raise RecipeError(f"there is no recipe {name!r}; there are {', '.join(recipe_names())}")
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module(_MODULE, version_base="1.3"):
            tree = OmegaConf.to_container(hydra_compose(name, [_forced(each) for each in overrides]), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise RecipeError(f"the recipe {name} can't be composed: {_first_line(error)}") from error
    return parse(tree)


def sweep(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Every combination of the values in overrides such as ``schedule=linear,cosine``, the last one changing fastest.

    Raises :class:`RecipeError` for what Hydra's grammar doesn't know.

    >>> list(sweep(["schedule=linear,cosine", "trainer.seed=range(2)"]))[1]
    ['schedule=linear', 'trainer.seed=1']
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        yield from (list(chosen) for chosen in product(*map(_values, parsed)))
    except HydraException as error:
        raise RecipeError(f"an override can't be read: {_first_line(error)}") from error


def _forced(override: str) -> str:
    """``group.key=value`` as ``++group.key=value``: whether there is such a key the recipe's own check says better."""
    key = override.partition("=")[0]
    return f"++{override}" if "." in key and key[0].isalpha() else override


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
