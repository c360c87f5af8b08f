"""Recipes: what to train, on what, how; composed of Hydra config groups, checked before anything starts."""

from denoscope.training.recipes.compose import compose, recipe_names, sweep
from denoscope.training.recipes.config import Recipe, RecipeError
from denoscope.training.recipes.fit import Fitted, fit
from denoscope.training.recipes.model_folder import load_trained
from denoscope.training.recipes.trained import Trained

__all__ = ["Fitted", "Recipe", "RecipeError", "Trained", "compose", "fit", "load_trained", "recipe_names", "sweep"]
