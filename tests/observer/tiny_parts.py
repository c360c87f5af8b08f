"""Parts of tiny pipelines: tokenizers, text encoders, autoencoders, networks of random weights."""

from typing import TypeVar

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from tokenizers import pre_tokenizers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerBase,
    Qwen2TokenizerFast,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

from denoscope.data.worlds.shapes.tokens import new_tokenizer

Network = TypeVar("Network", bound=torch.nn.Module)
WIDTH = 32
WORDS = ("a", "red", "circle", "above", "blue", "square", "crim", "son")


def clip_tokenizer() -> CLIPTokenizer:
    return new_tokenizer()


def clip_encoder(projected: bool, tokenizer: CLIPTokenizer, width: int = WIDTH) -> CLIPTextModel:
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=37,
        num_hidden_layers=3,
        num_attention_heads=4,
        projection_dim=width,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def t5_tokenizer() -> T5Tokenizer:
    """Whole words begin with ▁; "crimson" is two tokens."""
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -9.0)]
    vocabulary += [(f"▁{word}", -1.0) for word in WORDS if word != "son"] + [("son", -1.0)]
    vocabulary += [(letter, -20.0) for letter in "abcdefghijklmnopqrstuvwxyz,."]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0)


def t5_encoder(tokenizer: PreTrainedTokenizerBase, width: int = WIDTH) -> T5EncoderModel:
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=width,
        d_kv=8,
        d_ff=37,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
    )
    return T5EncoderModel(config)


def autoencoder(channels: int = 4, levels: int = 1, **more: float) -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(8,) * levels,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        layers_per_block=1,
        latent_channels=channels,
        norm_num_groups=4,
        **more,
    )


def unet(channels: int = 4, **more: object) -> UNet2DConditionModel:
    settings: dict[str, object] = {
        "sample_size": 8,
        "in_channels": channels,
        "out_channels": 4,
        "layers_per_block": 1,
        "block_out_channels": (16, 32),
        "down_block_types": ("CrossAttnDownBlock2D",) * 2,
        "up_block_types": ("CrossAttnUpBlock2D",) * 2,
        "cross_attention_dim": WIDTH,
        "attention_head_dim": 4,
        "norm_num_groups": 8,
    }
    return UNet2DConditionModel(**(settings | more))


def scheduler() -> DDIMScheduler:
    return DDIMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False)


def sharpened(network: Network) -> Network:
    """Fresh weights look everywhere alike; these don't."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith((".to_q.weight", ".to_k.weight", ".add_q_proj.weight", ".add_k_proj.weight")):
                weight.mul_(4)
            elif "norm_out.linear" in name or "proj_out" in name:
                torch.nn.init.normal_(weight, std=0.2)
    return network.eval()


class TextProcessor:
    """In the place of a processor of text and pictures: one that has a tokenizer alone."""

    def __init__(self, tokenizer: Qwen2TokenizerFast) -> None:
        self.tokenizer = tokenizer

    def apply_chat_template(self, conversation: object, **settings: object) -> object:
        return self.tokenizer.apply_chat_template(conversation, **settings)


def instruct_processor(padding_side: str) -> TextProcessor:
    """Marks turns as Mistral does."""
    tokenizer = chat_tokenizer()
    marks = ["<s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.padding_side = padding_side
    tokenizer.chat_template = (
        "<s>{% for message in messages %}{% set text = message.content[0].text %}{% if message.role == 'system' %}"
        "[SYSTEM_PROMPT]{{ text }}[/SYSTEM_PROMPT]{% else %}[INST]{{ text }}[/INST]{% endif %}{% endfor %}"
    )
    return TextProcessor(tokenizer)


def mistral(words: int) -> Mistral3ForConditionalGeneration:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "head_dim": 8}
    text = {"model_type": "mistral", "vocab_size": words, "num_hidden_layers": 4, "num_key_value_heads": 2}
    vision = {"model_type": "pixtral", "num_hidden_layers": 1, "image_size": 16, "patch_size": 8}
    return Mistral3ForConditionalGeneration(Mistral3Config(text_config=text | shape, vision_config=vision | shape))


def chat_tokenizer() -> Qwen2TokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["user", "assistant", *(f"Ġ{word}" for word in WORDS), "a"]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*letters, *words]))}
    merges: list[tuple[str, str]] = []
    for word in words:
        held = word[0]
        for letter in word[1:]:
            if (held, letter) not in merges:
                merges.append((held, letter))
            held += letter
            vocabulary.setdefault(held, len(vocabulary))
    tokenizer = Qwen2TokenizerFast(vocab=vocabulary, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer
