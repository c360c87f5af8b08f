"""The config groups of the recipes, as YAML."""
