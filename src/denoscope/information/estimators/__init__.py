"""Estimators of the information that features hold about a word."""

from denoscope.information.estimators.classic import cca_information, ksg_information, ross_information
from denoscope.information.estimators.critics import CriticEstimate, critic_information
from denoscope.information.estimators.folds import Folds, folds_of
from denoscope.information.estimators.probe import Estimate, null_information, probe, shuffles, unlearnt
from denoscope.information.estimators.registry import CrossCheck, cross_check

__all__ = [
    "CriticEstimate",
    "CrossCheck",
    "Estimate",
    "Folds",
    "cca_information",
    "critic_information",
    "cross_check",
    "folds_of",
    "ksg_information",
    "null_information",
    "probe",
    "ross_information",
    "shuffles",
    "unlearnt",
]
