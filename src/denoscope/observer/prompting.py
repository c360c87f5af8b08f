"""Which words the columns of text are, read from what a pipeline's text encoders are given."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.observer.errors import ObserveError
from denoscope.observer.words import Columns, select_words
from denoscope.pipelines.adapters import Adapter, Branch, PromptTokens

_WITHOUT_PROMPT: Final = ("uncond", "image")
"""Branches whose text is the negative prompt."""


class PromptReader:
    """The columns of the branch that is read: ``None`` until they are known.

    ``told`` is the prompt that a call with embeddings was made from; ``started`` says whether a step was made already.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        adapter: Adapter,
        words: Sequence[str] | None,
        branch: Branch,
        told: str | None,
        started: Callable[[], bool],
    ) -> None:
        self.columns: Columns | None = None
        self.guided: bool | None = None
        """Whether the prompt was encoded for guidance, where the pipeline says so."""
        self._pipe, self._adapter, self._words, self._branch = pipe, adapter, words, branch
        self._started = started
        self._ids: dict[str, list[int]] = {}
        self._awaited: set[str] = set()
        self._round = 0
        self._told = None if told is None else adapter.tokenize(pipe, told)
        if self._told is not None or not adapter.parts:
            self._learn(self._told or [])

    def before_encoding(self, *args: object, **kwargs: object) -> None:
        """The pipeline is about to encode a prompt, and perhaps a negative one after it."""
        method = getattr(type(self._pipe), str(self._adapter.encode_method))
        given = inspect.signature(method).bind(self._pipe, *args, **kwargs).arguments
        encoders = set(self._adapter.text_encoders(self._pipe))
        if self._adapter.encodes_twice and self.columns is not None and not self._started():
            self._awaited, self._round = encoders, 2  # the negative prompt, by a call of its own
            return
        if self._told is None:
            self.columns = None
        guided = given.get("do_classifier_free_guidance")
        self.guided = guided if isinstance(guided, bool) else None
        # The prompt is encoded first, the negative prompt after it; of a prompt given as embeddings the latter only.
        embedded = given.get("prompt_embeds") is not None or given.get("text_model_output") is not None
        self._ids, self._round = {}, 1
        self._awaited = set() if embedded else encoders

    def before_text(self, name: str, module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """A text encoder is given token ids.

        Raises :class:`ObserveError` for two prompts, and for another one than was told.
        """
        ids = args[0] if args else kwargs.get("input_ids")
        if name not in self._awaited or not isinstance(ids, Tensor) or ids.dim() != 2:
            return
        self._awaited.discard(name)
        if not bool((ids == ids[:1]).all()):
            raise ObserveError("observe watches one prompt per call; call the pipeline once for each prompt")
        self._ids[name] = ids[0].tolist()
        if self._awaited:
            return
        read = [self._ids.get(part.encoder, []) for part in self._adapter.parts]
        if self._round == 2:
            if self._branch in _WITHOUT_PROMPT:
                self._learn(read)
            return
        if self._told is None:
            self._learn(read)
        elif any(there[: len(told)] != told[: len(there)] for there, told in zip(read, self._told, strict=True)):
            raise ObserveError("the pipeline was called with another prompt than observe(..., prompt=TEXT) was told")
        if not self._adapter.encodes_twice:
            self._awaited, self._round = set(self._adapter.text_encoders(self._pipe)), 2

    def _learn(self, ids: list[list[int]]) -> None:
        tokens = self._adapter.prompt_tokens(self._pipe, ids)
        if self._branch in _WITHOUT_PROMPT and self._round != 2 and self._adapter.parts:
            # Until a negative prompt is read: embeddings of zero (SDXL), or none at all.
            tokens = PromptTokens((), tuple("padding" for _ in tokens.kinds))
        words = select_words(tokens, self._words) if self._adapter.parts and tokens.words else ()
        self.columns = Columns(words, tokens.kinds)
