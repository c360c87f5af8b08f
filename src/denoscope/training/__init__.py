"""Training: trainer, EMA, checkpoints, recipes."""
