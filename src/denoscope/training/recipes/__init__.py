"""Recipes: what to train, on what, how; composed of Hydra config groups, checked before anything starts."""

from denoscope.training.recipes.compose import compose, recipe_names
from denoscope.training.recipes.config import Recipe, RecipeError
from denoscope.training.recipes.fit import fit

__all__ = ["Recipe", "RecipeError", "compose", "fit", "recipe_names"]
