"""Stable Diffusion 1.x and 2.x, and every pipeline of that class: CLIP text encoder, U-Net with ``attn2`` layers."""

from collections.abc import Mapping, Sequence

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from denoscope.pipelines.adapters.base import Branch, PromptTokens, TokenKind, Word

_WORD_END = "</w>"


class StableDiffusionAdapter:
    """The U-Net family of ``StableDiffusionPipeline``.

    Cross-attention layers are the modules named ``….attn2`` (``attn1`` is image-to-image). Under guidance the batch is
    [unconditional, conditional].
    """

    name = "stable-diffusion"

    def denoiser(self, pipe: DiffusionPipeline) -> nn.Module:
        """``pipe.unet``."""
        unet: nn.Module = pipe.unet
        return unet

    def text_encoder(self, pipe: DiffusionPipeline) -> nn.Module | None:
        """``pipe.text_encoder``; the pipeline encodes the prompt first, then the negative prompt."""
        encoder: nn.Module | None = pipe.text_encoder
        return encoder

    def cross_attention(self, pipe: DiffusionPipeline) -> Mapping[str, nn.Module]:
        """The ``attn2`` modules by dotted name, in calling order (down, mid, up)."""
        found = {name: module for name, module in pipe.unet.named_modules() if name.split(".")[-1] == "attn2"}
        order = {"down_blocks": 0, "mid_block": 1, "up_blocks": 2}
        return dict(sorted(found.items(), key=lambda item: order.get(item[0].split(".")[0], 3)))

    def tokenize(self, pipe: DiffusionPipeline, prompt: str) -> list[int]:
        """Ids padded and cut to the tokenizer's length, as the pipeline does."""
        tokenizer = pipe.tokenizer
        prompt = pipe.maybe_convert_prompt(prompt, tokenizer)  # textual inversion
        ids: list[int] = tokenizer(
            prompt, padding="max_length", max_length=tokenizer.model_max_length, truncation=True
        )["input_ids"]
        return ids

    def prompt_tokens(self, pipe: DiffusionPipeline, ids: Sequence[int]) -> PromptTokens:
        """Group CLIP's tokens into words: a token that ends in ``</w>`` ends its word; an added token is one alone."""
        tokenizer = pipe.tokenizer
        added = tokenizer.get_added_vocab()
        spelled: list[str] = tokenizer.convert_ids_to_tokens(list(ids))
        # The padding token may be the end token itself (SD 1.x): only the first one ends the prompt.
        end = next((i for i, token in enumerate(ids) if i > 0 and token == tokenizer.eos_token_id), len(ids))
        kinds: list[TokenKind] = [
            "bos" if i == 0 else "words" if i < end else "eos" if i == end else "padding" for i in range(len(ids))
        ]
        words: list[Word] = []
        seen: dict[str, int] = {}
        start = 1
        for i in range(1, end):
            if spelled[i].endswith(_WORD_END) or spelled[i] in added or i == end - 1:
                text = tokenizer.decode(list(ids[start : i + 1])).replace(_WORD_END, " ").strip()
                seen[text] = seen.get(text, 0) + 1
                label = text if seen[text] == 1 else f"{text}#{seen[text]}"
                words.append(Word(label, tuple(range(start, i + 1)), tuple(spelled[start : i + 1])))
                start = i + 1
        return PromptTokens(tuple(words), tuple(kinds))

    def branches(self, pipe: DiffusionPipeline, output: Tensor) -> Mapping[Branch, slice]:
        """Both branches while guidance is on, the conditional one alone otherwise."""
        n = len(output)
        if pipe.do_classifier_free_guidance:
            return {"uncond": slice(0, n // 2), "cond": slice(n // 2, n)}
        return {"cond": slice(0, n)}

    def map_size(self, sample: Tensor, queries: int) -> tuple[int, int]:
        """Follow the U-Net's halvings (rounded up, as its stride-2 convolutions do) from the latent's size."""
        height, width = int(sample.shape[-2]), int(sample.shape[-1])
        while height * width > queries and (height, width) != (1, 1):
            height, width = (height + 1) // 2, (width + 1) // 2
        if height * width != queries:
            raise ValueError(f"no level of the U-Net has {queries} locations for latents {tuple(sample.shape[-2:])}")
        return height, width
