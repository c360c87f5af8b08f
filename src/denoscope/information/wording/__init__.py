"""Words of an experiment: templates, how a text encoder sees a prompt's words, and what could stand in their place."""
