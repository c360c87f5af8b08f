"""A prompt with fields, some of which are measured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from denoscope.information.errors import InformationError

_FIELD: Final = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_HELP: Final = """\
# An experiment of 'denoscope dynamics --file'. Fields stand in braces in the template.
# slots: fields that are measured, each with its substitutes, two or more.
# contexts: fields that only vary, each with its values.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """``text`` with fields in braces; ``slots`` are measured, ``contexts`` only vary. Values keep their order.

    Raises :class:`InformationError` in one sentence for a field without values, values of no field, fewer than two
    substitutes, a value that comes twice or is empty, and braces that hold no plain name.

    >>> template = Template("a {colour} {shape}", {"colour": ("red", "blue")}, {"shape": ("circle",)})
    >>> template.fields, template.prompt(colour="red", shape="circle")
    (('colour', 'shape'), 'a red circle')
    """

    text: str
    slots: Mapping[str, tuple[str, ...]]
    contexts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rest = _FIELD.sub("", self.text)
        if "{" in rest or "}" in rest:
            raise InformationError(f"the template {self.text!r} has braces that hold no plain name, such as {{colour}}")
        both = sorted(set(self.slots) & set(self.contexts))
        if both:
            raise InformationError(f"{both[0]} is a slot and a context: it can be one of them")
        given = {**self.slots, **self.contexts}
        for name in self.fields:
            if name not in given:
                raise InformationError(
                    f"the template's field {{{name}}} has no values: give --slot or --context {name}=A,B"
                )
        for name, values in given.items():
            if name not in self.fields:
                raise InformationError(f"{name} has values, but the template has no {{{name}}}")
            if name in self.slots and len(values) < 2:
                raise InformationError(f"the slot {name} needs two substitutes or more, not {len(values)}")
            if not values or any(not value.strip() for value in values):
                raise InformationError(f"{name} has an empty value: give words, separated by commas")
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise InformationError(f"{name} has {twice!r} twice: give each value once")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, each once, in order of appearance."""
        return tuple(dict.fromkeys(_FIELD.findall(self.text)))

    def prompt(self, **values: str) -> str:
        """The text with a value in every field. Values are put in as they are, braces and all.

        Raises :class:`InformationError` for a field without a value.
        """
        missing = [name for name in self.fields if name not in values]
        if missing:
            raise InformationError(f"the field {missing[0]} has no value")
        return _FIELD.sub(lambda found: values[found[1]], self.text)


def parse_slot(text: str) -> tuple[str, tuple[str, ...]]:
    """A field and its values as a command line has them.

    Raises :class:`InformationError` for anything else.

    >>> parse_slot("colour = red, dark green")
    ('colour', ('red', 'dark green'))
    """
    name, equals, values = text.partition("=")
    if not equals or not _FIELD.fullmatch(f"{{{name.strip()}}}"):
        raise InformationError(f"{text!r} can't be read: give a field and its values, such as colour=red,green,blue")
    return name.strip(), tuple(value.strip() for value in values.split(","))


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    template: str
    slots: dict[str, list[str]]
    contexts: dict[str, list[str]] = {}


def load_template(path: Path) -> Template:
    """Read a template from a YAML file with ``template``, ``slots`` and ``contexts``.

    Raises :class:`InformationError` in one sentence when it can't be read or holds something else.
    """
    try:
        told = _File.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except FileNotFoundError:
        raise InformationError(f"there is no file {path}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InformationError(f"{path} holds no experiment: {place}: {first['msg']}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InformationError(f"{path} can't be read as YAML: {str(error).splitlines()[0]}") from error
    return Template(
        told.template,
        {name: tuple(values) for name, values in told.slots.items()},
        {name: tuple(values) for name, values in told.contexts.items()},
    )


def save_template(path: Path, template: Template) -> None:
    """Write a template as YAML, with comments that say how to edit it."""
    told = {
        "template": template.text,
        "slots": {name: list(values) for name, values in template.slots.items()},
        "contexts": {name: list(values) for name, values in template.contexts.items()},
    }
    text = _HELP + yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=100)
    path.write_text(text, "utf-8", newline="\n")
