"""Networks that turn samples into features."""
