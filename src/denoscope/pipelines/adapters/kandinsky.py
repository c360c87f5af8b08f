"""Kandinsky 2.2: a prior from text to a picture's embedding, and a decoder that is told this embedding alone."""

from collections.abc import Mapping, Sequence

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.pipelines.adapters.base import Adapter, Attends, DenoiserCall, PromptTokens, Section
from denoscope.pipelines.adapters.spelling import TokenKind
from denoscope.pipelines.adapters.unclip import AddedKeysAdapter


class KandinskyDecoderAdapter(AddedKeysAdapter):
    """The decoder reads no text: its columns are embeddings of a picture."""

    name = "kandinsky-2.2-decoder"
    classes = ("KandinskyV22Pipeline", "KandinskyV22Img2ImgPipeline", "KandinskyV22InpaintPipeline")
    encode_method = None
    parts = ()
    image_columns = True
    note = "the decoder reads no words, but an embedding of a picture; words are seen in the prior"

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[Sequence[int]]) -> PromptTokens:
        """As many columns as its projection makes."""
        count = int(pipe.unet.encoder_hid_proj.num_image_text_embeds)
        kinds: list[TokenKind] = ["image"] * count
        return PromptTokens((), tuple(kinds))


class KandinskyPriorAdapter(Adapter):
    """Of [text, text's embedding, time, picture's embedding, answer] the last one's attention to the text is read.

    There is no picture yet: maps have one place.
    """

    name = "kandinsky-2.2-prior"
    classes = ("KandinskyV22PriorPipeline",)
    denoiser_name = "prior"
    sample_name = "hidden_states"
    encode_method = "_encode_prompt"
    feature_layers = ("transformer_blocks.*",)
    joint = True
    has_places = False
    note = "there is no picture in the prior: a word has one number, not a map"

    def layers(self, pipe: DiffusionPipeline, attends: Attends) -> Mapping[str, nn.Module]:
        """``attn1`` of every block reads the text; there are no places to attend to."""
        if attends == "self":
            return {}
        found = self.denoiser(pipe).named_modules()
        return {name: layer for name, layer in found if name.split(".")[-1] == "attn1"}

    def grid(self, pipe: DiffusionPipeline, call: DenoiserCall) -> tuple[int, int]:
        """One place."""
        return 1, 1

    def spatial(self, latents: Tensor, grid: tuple[int, int]) -> Tensor | None:
        """An embedding is no map."""
        return None

    def section(self, call: DenoiserCall, layer: nn.Module, queries: int, keys: int) -> Section | None:
        """The last query is the answer."""
        text = call.tensor("encoder_hidden_states").shape[1]
        return Section(slice(queries - 1, queries), slice(0, text), slice(text, keys))
