"""Synthetic worlds whose posteriors are known exactly."""
