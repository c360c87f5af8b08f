"""Estimators of the information that features hold about a word."""

from denoscope.information.estimators.folds import Folds, folds_of
from denoscope.information.estimators.probe import Estimate, null_information, probe, shuffles
from denoscope.information.estimators.registry import Estimator, estimator_named

__all__ = ["Estimate", "Estimator", "Folds", "estimator_named", "folds_of", "null_information", "probe", "shuffles"]
