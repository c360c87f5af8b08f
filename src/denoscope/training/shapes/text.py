"""The text encoder of the shapes model: a CLIP tokenizer and a CLIP text model that understands captions.

It is trained on captions alone, before the denoiser. The task mimics what a denoiser needs: learned queries, one per
region of the picture, look at the words by cross-attention and must say what stands there. The queries never see the
end and padding tokens, so what a caption says has to be found at its words.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from denoscope.data.worlds.shapes import Meaning, describe, sample_scene
from denoscope.data.worlds.shapes.captions import GENERIC_NOUN, PLACES, RELATIONS, SYNONYMS
from denoscope.data.worlds.shapes.scenes import ATTRIBUTES, LAYOUTS, VALUES, Region
from denoscope.data.worlds.shapes.tokens import MAX_TOKENS, tokenize

HIDDEN_SIZE = 128


def new_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """An untrained CLIP text model: three layers of width 128, 0.7 M parameters."""
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN_SIZE,
            intermediate_size=4 * HIDDEN_SIZE,
            projection_dim=HIDDEN_SIZE,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=MAX_TOKENS,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


_REGIONS: tuple[Region, ...] = tuple(region for regions in LAYOUTS.values() for region in regions)


def _answers(meaning: Meaning) -> Iterator[list[int]]:
    """For each region what the caption says: five answers, 0 for nothing said, plus whether the region is used."""
    for layout, regions in LAYOUTS.items():
        for slot in range(len(regions)):
            if meaning.layout != layout:
                yield [0] * (len(ATTRIBUTES) + 2)
                continue
            mention = meaning.mentions[slot]
            said = [mention.value(name) for name in ATTRIBUTES]
            answers = [
                0 if value is None else 1 + VALUES[name].index(value)
                for name, value in zip(ATTRIBUTES, said, strict=True)
            ]
            places = list(PLACES.values())
            yield [*answers, 0 if meaning.place is None else 1 + places.index(meaning.place), 1]


class CaptionQuestions(nn.Module):
    """The encoder under training and the questions asked of its token states."""

    def __init__(self, encoder: CLIPTextModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.queries = nn.Parameter(torch.randn(len(_REGIONS), HIDDEN_SIZE) * 0.1)
        self.attention = nn.MultiheadAttention(HIDDEN_SIZE, 4, batch_first=True)
        self.counts = [1 + len(VALUES[name]) for name in ATTRIBUTES] + [1 + len(PLACES), 2]
        self.answers = nn.Linear(HIDDEN_SIZE, sum(self.counts))
        own = [1 + len(VALUES[name]) for name in ATTRIBUTES]
        self.own_counts = own
        self.own = nn.Linear(HIDDEN_SIZE, sum(own))

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Answers about every region ``(n, 5, sum of counts)`` and about each token's own object ``(n, 32, …)``."""
        states = self.encoder(ids).last_hidden_state
        words = (ids != self.encoder.config.eos_token_id) & (ids != self.encoder.config.bos_token_id)
        hidden = ~words
        hidden[:, 0] &= words.any(1)  # the empty caption leaves only the start token to look at
        queries = self.queries.expand(len(ids), -1, -1)
        found, _ = self.attention(queries, states, states, key_padding_mask=hidden, need_weights=False)
        return self.answers(found), self.own(states)


def caption_loss(
    model: CaptionQuestions, tokenizer: CLIPTokenizer, generator: torch.Generator, batch_size: int = 128
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of all answers on a fresh batch, and the fraction of captions answered without a mistake."""
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    drawn = [describe(sample_scene(rng), rng) for _ in range(batch_size)]
    ids = tokenize(tokenizer, [text for text, _ in drawn])
    # The model is causal, so padding beyond the longest caption changes nothing before it.
    ids = ids[:, : int((ids != tokenizer.eos_token_id).sum(1).max()) + 1]
    targets = torch.tensor([list(_answers(meaning)) for _, meaning in drawn])
    answers, own = model(ids)
    losses = []
    right = torch.ones(batch_size, dtype=torch.bool)
    for column, logits in enumerate(answers.split(model.counts, dim=-1)):
        losses.append(functional.cross_entropy(logits.flatten(0, 1), targets[..., column].flatten()))
        right &= (logits.argmax(-1) == targets[..., column]).all(1)
    # The last word of an object is its noun: there the object's own attributes must be readable.
    position, wanted = _noun_positions(tokenizer, ids, drawn)
    at_nouns = own[position[:, 0], position[:, 1]]
    losses.extend(
        functional.cross_entropy(logits, wanted[:, column])
        for column, logits in enumerate(at_nouns.split(model.own_counts, dim=-1))
    )
    return torch.stack(losses).mean(), right.float().mean()


def _noun_positions(tokenizer: CLIPTokenizer, ids: Tensor, drawn: list[tuple[str, Meaning]]) -> tuple[Tensor, Tensor]:
    nouns = {*VALUES["shape"], GENERIC_NOUN}
    nouns |= {word for word, meaning in SYNONYMS.items() if meaning in nouns}
    token_ids = [tokenizer.convert_tokens_to_ids(f"{noun}</w>") for noun in sorted(nouns)]
    position = torch.isin(ids, torch.tensor(token_ids)).nonzero()
    wanted = []
    for text, meaning in drawn:
        mentions = list(meaning.mentions)
        swapped = any(phrase in text for phrase, (_, swap) in RELATIONS.items() if swap)
        for mention in reversed(mentions) if swapped else mentions:
            said = [(name, mention.value(name)) for name in ATTRIBUTES]
            wanted.append([0 if v is None else 1 + VALUES[name].index(v) for name, v in said])
    return position, torch.tensor(wanted)
