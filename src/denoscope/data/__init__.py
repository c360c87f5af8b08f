"""Data: picture folders and synthetic worlds."""
