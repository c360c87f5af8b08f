"""Reading the attention of watched layers: to the prompt's words, or from a region to the picture's places."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.observer.attention import groups_of, mass_of, mean_row
from denoscope.observer.errors import ObserveError
from denoscope.observer.hearing import OnAttention, hear, stop_hearing
from denoscope.observer.prompting import PromptReader
from denoscope.observer.records import StepRecord, Tally
from denoscope.observer.regions import Region, checked, inside
from denoscope.observer.words import Columns
from denoscope.pipelines.adapters import Adapter, Attends, Branch, DenoiserCall, Section

_SMALL: Final = 1 << 18
"""Bytes of queries and keys below which a layer's attention is kept and read later, many steps at once."""
_KEPT: Final = 1 << 22
"""Bytes of queries and keys that are kept at most, beside those of one step."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the queries and keys of one layer are, in one pipeline call.

    ``queries`` are the places that are read, ``None`` for all; ``size`` is their map. For words ``groups`` are the
    columns of :func:`~denoscope.observer.attention.groups_of`, ``words`` and ``kinds`` so many of them; for a region
    ``there`` says which queries lie in it (``None``: all) and ``places`` which keys are places. It holds for queries
    and keys ``of`` one form, and ``small`` says whether those of the branch are kept.
    """

    of: tuple[object, ...]
    small: bool
    queries: slice | None
    size: tuple[int, int]
    groups: tuple[Tensor, ...] = ()
    words: int = 0
    kinds: int = 0
    there: Tensor | None = None
    places: slice = field(default_factory=lambda: slice(0, 0))


@dataclass(slots=True)
class _Kept:
    """Queries and keys of one layer at several steps."""

    layer: str
    layout: Layout
    scale: float | None
    queries: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)


class AttentionReader:
    """Reads into the record of the current step; what is small, later, into those of the steps it was seen at.

    On a small network Python and cold caches take longer than the reading, and many steps at once pay for them once.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        adapter: Adapter,
        layers: Mapping[str, nn.Module],
        prompt: PromptReader,
        tally: Tally,
        aside: Callable[[Callable[..., None]], Callable[..., None]],
        *,
        attends: Attends | None,
        branch: Branch,
        heads: bool,
        region: Region | None,
    ) -> None:
        self.layers = layers
        self.thread = 0
        self.seen: set[str] = set()
        self.mismatch = ""
        self._pipe, self._adapter, self._prompt, self._tally = pipe, adapter, prompt, tally
        self._attends, self._branch, self._apart, self._region = attends, branch, heads, checked(region)
        self._on_attention: OnAttention = aside(self.on_attention)
        self._record = StepRecord(0.0, 0.0, 0.0)
        self._layer: str | None = None
        self._call: DenoiserCall | None = None
        self._size = (0, 0)
        self._reached: set[str] = set()
        self._rows: dict[int, slice | None] = {}
        self._columns: Columns | None = None
        self._groups: dict[tuple[object, ...], tuple[Tensor, ...]] = {}
        self._layouts: dict[tuple[object, ...], dict[str, Layout]] = {}
        self._here: dict[str, Layout] = {}
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._bytes = 0

    # -- when something is read ----------------------------------------------------------------------------------

    def begin_call(self, call: DenoiserCall, size: tuple[int, int], record: StepRecord) -> None:
        """A call of the denoiser begins, for latents of that size."""
        self.leave()
        self._call, self._size, self._record = call, size, record
        self._reached, self._rows = set(), {}
        if self._prompt.columns is not self._columns:
            self._columns, self._layouts, self._groups = self._prompt.columns, {}, {}
        # A layout follows from the call's shapes, and from the size, which some calls tell by position ids.
        shapes = (size, *(value.shape for value in call.arguments.values() if isinstance(value, Tensor)))
        self._here = self._layouts.setdefault(shapes, {})

    def enter(self, name: str, *_: object) -> None:
        """A watched layer begins."""
        if threading.get_ident() == self.thread:
            if self._layer is None:
                hear(self._on_attention)
            self._layer = name

    def leave(self, *_: object) -> None:
        """It ends."""
        if self._layer is not None and threading.get_ident() == self.thread:
            stop_hearing()
            self._layer = None

    def end_step(self) -> None:
        """The step's record is in the tally."""
        self._call = None
        if self._bytes > _KEPT:
            self.read_kept()

    # -- reading -------------------------------------------------------------------------------------------------

    def on_attention(self, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> None:
        """A watched layer hands its queries and keys to the kernel.

        Raises :class:`ObserveError` when the keys can't be told apart.
        """
        name, call = self._layer, self._call
        if name is None or call is None:
            return
        self.seen.add(name)
        # Further attention of the layer in this call is to something else: pictures, by an IP-Adapter.
        if name in self._reached:
            return
        count, of = len(query), (query.shape, key.shape, query.dtype, query.device)
        layout = self._here.get(name)
        section: Section | None = None
        if layout is None or layout.of != of:
            layout = None
            section = self._adapter.section(call, self.layers[name], query.shape[-2], key.shape[-2])
            if section is None:
                told = f"{name} attends from {query.shape[-2]} to {key.shape[-2]} places"
                self.mismatch = self.mismatch or told
                return
        self._reached.add(name)
        if count not in self._rows:
            self._rows[count] = self._adapter.branches(self._pipe, call, count).get(self._branch)
        rows = self._rows[count]
        if rows is None:
            return
        if torch.is_grad_enabled():  # leaving it on and detaching is quicker than turning it off
            query, key = query.detach(), key.detach()
        query, key = query[rows], key[rows]
        if layout is None and section is not None:
            layout = self._here[name] = self._lay_out(name, section, query, key, of)
        if layout is None:
            return
        if layout.queries is not None:
            query = query[..., layout.queries, :]
        if mask is None and layout.small:
            kept = self._kept.setdefault((name, id(layout), scale), _Kept(name, layout, scale))
            self._keep(kept, query.clone(), key.clone())
            return
        if mask is not None:
            mask = mask.detach()[rows] if mask.dim() == 4 and len(mask) == count else mask.detach()
            if layout.queries is not None and mask.shape[-2] > 1:
                mask = mask[..., layout.queries, :]
        for kind, found in self._read(layout, query, key, mask, scale).items():
            getattr(self._record, kind)[name] = found.cpu() if self._tally.keep_steps else found

    def _keep(self, kept: _Kept, query: Tensor, key: Tensor) -> None:
        if kept.records and kept.records[-1] is self._record:  # the last call of a step counts
            kept.queries[-1], kept.keys[-1] = query, key
            return
        kept.queries.append(query)
        kept.keys.append(key)
        kept.records.append(self._record)
        self._bytes += _bytes(query) + _bytes(key)

    @torch.no_grad()
    def read_kept(self) -> None:
        """Read what was kept of finished steps."""
        for place, kept in list(self._kept.items()):
            finished = len(kept.records) - (self._call is not None and kept.records[-1] is self._record)
            if not finished:
                continue
            query, key = torch.cat(kept.queries[:finished]), torch.cat(kept.keys[:finished])
            for kind, found in self._read(kept.layout, query, key, None, kept.scale).items():
                by_step = found.reshape(finished, len(found) // finished, *found.shape[1:])
                self._tally.put(kind, kept.layer, by_step, kept.records[:finished])
            del self._kept[place], kept.queries[:finished], kept.keys[:finished], kept.records[:finished]
            if kept.records:
                self._kept[place] = kept
        self._bytes = 0

    def check(self, way_to_show: str, recorded: set[str]) -> None:
        """Raises :class:`ObserveError` when a layer's attention was not seen, and says why.

        ``way_to_show`` is the call that makes it seen.
        """
        unseen = [name for name in self.layers if name not in self.seen]
        if unseen:
            processor = type(getattr(self.layers[unseen[0]], "processor", None)).__name__
            raise ObserveError(
                f"{unseen[0]} uses {processor}, which does not go through scaled_dot_product_attention, so its "
                f"attention can't be seen; first call {way_to_show}"
            )
        missing = [name for name in self.layers if name not in recorded]
        if missing and self.mismatch:
            raise ObserveError(f"{self.mismatch}, which are not those of this model's text and picture")
        if missing:
            raise ObserveError(f"no call had the branch {self._branch!r}; observe with branch='cond'")

    def _lay_out(self, name: str, section: Section, query: Tensor, key: Tensor, of: tuple[object, ...]) -> Layout:
        small = _bytes(query) + _bytes(key) <= _SMALL
        whole = section.queries.start == 0 and section.queries.stop == query.shape[-2]
        queries = None if whole else section.queries
        count = section.queries.stop - section.queries.start
        if self._attends == "self":
            height, width = self._adapter.map_size(self._size, section.places.stop - section.places.start)
            there = inside(self._region, height, width).flatten()
            chosen = None if bool(there.all()) else there.to(query.device)
            return Layout(of, small, queries, (height, width), there=chosen, places=section.places)
        if self._columns is None:
            raise ObserveError(
                "the prompt's words are unknown (it was given as embeddings); pass observe(..., prompt=TEXT)"
            )
        tokens, kinds = section.text.stop - section.text.start, self._adapter.kinds
        columns = self._columns.fitted(tokens)
        if columns is None:
            raise ObserveError(
                f"the prompt has {len(self._columns.kinds)} tokens but {name} attends to {tokens}; "
                "prompts lengthened by other tools can't be mapped to words"
            )
        place = (key.shape[1:], query.device, section.text.start, tokens)
        if place not in self._groups:
            matrix = columns.matrix(kinds, key.shape[-2], section.text).to(query.device)
            self._groups[place] = groups_of(matrix, query.shape[-1], query.shape[1])
        size = self._adapter.map_size(self._size, count)
        return Layout(of, small, queries, size, self._groups[place], len(columns.words), len(kinds))

    def _read(
        self, layout: Layout, query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None
    ) -> dict[str, Tensor]:
        """By the record's field, as it stands there, with all pictures along the first axis."""
        height, width = layout.size
        if self._attends == "self":
            if layout.there is not None:
                query = query[..., layout.there, :]
                mask = mask[..., layout.there, :] if mask is not None and mask.shape[-2] > 1 else mask
            found = mean_row(query, key, mask, scale)[:, layout.places]
            return {"self_attention": found.reshape(len(found), height, width)}
        mass = mass_of(query, key, layout.groups, mask, scale, heads_apart=self._apart)
        words = mass[..., : layout.words]
        if self._apart:
            apart = words.permute(0, 3, 1, 2) * mass.shape[1]  # (S, words, heads, places)
            maps, mass = apart.reshape(*apart.shape[:3], height, width), mass.sum(1)
        else:
            maps = words.transpose(1, 2).reshape(len(mass), -1, height, width)
        maps = maps.contiguous()  # a view would hold the columns of padding, too
        return {"attention": maps, "token_mass": mass[..., layout.words : layout.words + layout.kinds].mean(1)}


def _bytes(held: Tensor) -> int:
    return held.numel() * held.element_size()
