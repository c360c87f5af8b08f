"""``denoscope models list`` says what the adapters do."""

import json

import diffusers
from typer.testing import CliRunner

from denoscope.cli.main import app
from denoscope.pipelines.adapters import ADAPTERS


def test_every_family_is_listed() -> None:
    shown = CliRunner().invoke(app, ["models", "list"])
    assert shown.exit_code == 0
    for adapter in ADAPTERS:
        assert adapter.name in shown.output


def test_json_has_all_and_every_pipeline_is_one_of_diffusers() -> None:
    told = json.loads(CliRunner().invoke(app, ["models", "list", "--json"]).output)
    assert [family["family"] for family in told] == [adapter.name for adapter in ADAPTERS]
    classes = [name for family in told for name in family["pipelines"]]
    assert len(set(classes)) == len(classes) > 30
    assert all(hasattr(diffusers, name) for name in classes)
    by_name = {family["family"]: family for family in told}
    assert "words" in by_name["flux"]["observes"]
    assert "words" not in by_name["dit"]["observes"]
