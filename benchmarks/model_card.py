"""Put measurements into the embedded model's card, so that no figure there is typed by hand.

python -m benchmarks.shapes_quality --json > measured/quality.json
python -m benchmarks.decoder_ceiling --json > measured/ceiling.json
python -m benchmarks.bayes_floor --json > measured/floor.json
python -m benchmarks.attention_on_object --json > measured/attention.json
python -m benchmarks.latent_geometry --json > measured/geometry.json
python -m benchmarks.model_card measured
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from benchmarks.shapes_quality import WANTED
from denoscope.pipelines.loading import embedded_folder


class Rate(TypedDict):
    """A share with its Wilson 95 % interval."""

    value: float
    low: float
    high: float
    n: int


Rates = dict[str, dict[str, Rate]]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [head, *rows]
    told = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([told[0], "|" + "---|" * len(head), *told[1:]])


def _interval(rate: Rate) -> list[str]:
    return [f"{rate['value']:.3f}", f"{rate['low']:.3f}…{rate['high']:.3f}", str(rate["n"])]


def quality(text: str) -> str:
    """The table of ``shapes_quality``, with what was wanted."""
    measured: dict[str, dict[str, float]] = json.loads(text)
    settings = measured["settings"]
    found: Rates = json.loads(text)["rates"]
    rows = []
    for kind, by_name in found.items():
        for name, rate in by_name.items():
            wanted = WANTED.get((kind, name))
            reached = "" if wanted is None else f"{wanted:.2f}, {_reached(rate, wanted)}"
            rows.append([kind, name, *_interval(rate), reached])
    table = markdown(["objects", "right", "rate", "95 % interval", "n", "wanted"], rows)
    return f"{settings['n']:,} pictures, {settings['steps']} steps, guidance {settings['guidance']:g}:\n\n{table}"


def _reached(rate: Rate, wanted: float) -> str:
    return "reached" if rate["value"] >= wanted else "**missed**"


def ceiling(text: str) -> str:
    """The table of ``decoder_ceiling``."""
    found: Rates = json.loads(text)
    rows = [[kind, name, *_interval(rate)] for kind, by_name in found.items() for name, rate in by_name.items()]
    return markdown(["objects", "read right", "rate", "95 % interval", "n"], rows)


def floor(text: str) -> str:
    """The table of ``bayes_floor``."""
    levels: list[dict[str, float]] = json.loads(text)["levels"]
    rows = [
        [f"{row['logsnr']:.2f}", *(f"{row[name]:.5f}" for name in ("network", "floor", "ratio", "gap_v"))]
        for row in levels
    ]
    table = markdown(["logsnr", "network", "Bayes floor", "ratio", "gap on v"], rows)
    return f"{json.loads(text)['n']} noisy latents a level:\n\n{table}"


def attention(text: str) -> str:
    """The table of ``attention_on_object``."""
    measured: dict[str, int] = json.loads(text)
    groups: list[dict[str, float]] = json.loads(text)["groups"]
    rows = [
        [
            *(str(row[name]) for name in ("word", "named")),
            *(f"{row[name]:.3f}" for name in ("own", "other", "own_more")),
            f"{row['low']:.3f}…{row['high']:.3f}",
            str(row["n"]),
        ]
        for row in groups
    ]
    table = markdown(["word", "named", "mass on own", "on other", "own > other", "95 % interval", "n"], rows)
    return f"{measured['prompts']} prompts, {measured['unread']} of them without two readable objects:\n\n{table}"


def geometry(text: str) -> str:
    """The closest pair of each attribute, from ``latent_geometry``."""
    pairs: list[dict[str, float]] = json.loads(text)["pairs"]
    closest = {str(row["attribute"]): row for row in reversed(pairs)}
    rows = [[name, str(row["pair"]), f"{row['least']:.2f}", f"{row['median']:.2f}"] for name, row in closest.items()]
    table = markdown(["attribute", "closest pair", "least squared distance", "median"], rows)
    relative = json.loads(text)["composite_relative_rms"]
    return (
        f"{table}\n\nThe encoder's own latents of two-object pictures differ from put-together ones by {relative:.1%}."
    )


TABLES: dict[str, Callable[[str], str]] = {
    "quality": quality,
    "ceiling": ceiling,
    "floor": floor,
    "attention": attention,
    "geometry": geometry,
}


def fill(card: str, tables: dict[str, str]) -> str:
    """The card with the text between ``<!-- NAME -->`` and ``<!-- /NAME -->`` replaced.

    >>> fill("a <!-- x -->old<!-- /x --> b", {"x": "new"})
    'a <!-- x -->\\n\\nnew\\n\\n<!-- /x --> b'
    """
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start not in card or end not in card:
            raise ValueError(f"the card has no place {start}…{end}")
        before, rest = card.split(start, 1)
        card = f"{before}{start}\n\n{table}\n\n{end}{rest.split(end, 1)[1]}"
    return card


def main(
    measured: Annotated[Path, typer.Argument(help="Folder with the JSON files named above.")],
    card: Annotated[Path | None, typer.Option(help="The card to write; the embedded model's if not given.")] = None,
) -> None:
    """Write every table whose measurement is there."""
    found = {name: table((measured / f"{name}.json").read_text("utf-8")) for name, table in TABLES.items()}
    card = card or embedded_folder("shapes") / "README.md"
    card.write_text(fill(card.read_text("utf-8"), found), "utf-8")
    print(card)


if __name__ == "__main__":
    typer.run(main)
