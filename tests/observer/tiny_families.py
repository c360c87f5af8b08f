"""A tiny pipeline of every family, random weights, made from configs; saved and loaded by the tests as a user would."""

from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKLFlux2,
    DDPMPipeline,
    DDPMScheduler,
    DiffusionPipeline,
    DiTPipeline,
    DiTTransformer2DModel,
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    FluxPipeline,
    FluxTransformer2DModel,
    KandinskyV22Pipeline,
    KandinskyV22PriorPipeline,
    PixArtAlphaPipeline,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    PriorTransformer,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionInstructPix2PixPipeline,
    StableDiffusionPAGPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLImg2ImgPipeline,
    StableDiffusionXLPipeline,
    UnCLIPPipeline,
    UnCLIPScheduler,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from diffusers.pipelines.deprecated.unclip.text_proj import UnCLIPTextProjModel
from tiny_parts import (
    WIDTH,
    autoencoder,
    chat_tokenizer,
    clip_encoder,
    clip_tokenizer,
    scheduler,
    sharpened,
    t5_encoder,
    t5_tokenizer,
    unet,
)
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import denoscope


def _around(kind: type[DiffusionPipeline], network: UNet2DConditionModel, **more: object) -> DiffusionPipeline:
    """A pipeline of Stable Diffusion's components."""
    tokenizer = clip_tokenizer()
    parts = (autoencoder(), clip_encoder(False, tokenizer), tokenizer, sharpened(network), scheduler(), None, None)
    return kind(*parts, requires_safety_checker=False, **more)


def sd() -> DiffusionPipeline:
    return _around(StableDiffusionPipeline, unet())


def instruct_pix2pix() -> DiffusionPipeline:
    return _around(StableDiffusionInstructPix2PixPipeline, unet(8))


def pag() -> DiffusionPipeline:
    return _around(StableDiffusionPAGPipeline, unet(), pag_applied_layers=["mid"])


def sdxl_network(ids: int) -> UNet2DConditionModel:
    return sharpened(
        unet(
            attention_head_dim=(2, 4),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            transformer_layers_per_block=(1, 2),
            projection_class_embeddings_input_dim=8 * ids + WIDTH,
            cross_attention_dim=2 * WIDTH if ids == 6 else WIDTH,
        )
    )


def sdxl() -> DiffusionPipeline:
    tokenizer = clip_tokenizer()
    return StableDiffusionXLPipeline(
        autoencoder(),
        clip_encoder(False, tokenizer),
        clip_encoder(True, tokenizer),
        tokenizer,
        clip_tokenizer(),
        sdxl_network(6),
        scheduler(),
        add_watermarker=False,
    )


def sdxl_refiner() -> DiffusionPipeline:
    tokenizer = clip_tokenizer()
    return StableDiffusionXLImg2ImgPipeline(
        autoencoder(),
        None,
        clip_encoder(True, tokenizer),
        None,
        tokenizer,
        sdxl_network(5),
        scheduler(),
        requires_aesthetics_score=True,
        add_watermarker=False,
    )


def sd3(dual: bool = False) -> DiffusionPipeline:
    tokenizer, sentencepiece = clip_tokenizer(), t5_tokenizer()
    transformer = SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=64,
        pooled_projection_dim=64,
        pos_embed_max_size=96,
        qk_norm="rms_norm" if dual else None,
        dual_attention_layers=(0,) if dual else (),
    )
    return StableDiffusion3Pipeline(
        sharpened(transformer),
        FlowMatchEulerDiscreteScheduler(),
        autoencoder(16, shift_factor=0.1, scaling_factor=1.5),
        clip_encoder(True, tokenizer),
        tokenizer,
        clip_encoder(True, tokenizer),
        clip_tokenizer(),
        t5_encoder(sentencepiece, 64),
        sentencepiece,
    )


def flux() -> DiffusionPipeline:
    tokenizer, sentencepiece = clip_tokenizer(), t5_tokenizer()
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    return FluxPipeline(
        FlowMatchEulerDiscreteScheduler(),
        autoencoder(4, shift_factor=0.1, scaling_factor=1.5),
        clip_encoder(False, tokenizer),
        tokenizer,
        t5_encoder(sentencepiece),
        sentencepiece,
        sharpened(transformer),
    )


def flux2() -> DiffusionPipeline:
    tokenizer = chat_tokenizer()
    encoder = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=512,
        )
    )
    transformer = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=48,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = AutoencoderKLFlux2(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
        block_out_channels=(4,),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return Flux2KleinPipeline(FlowMatchEulerDiscreteScheduler(), vae, encoder, tokenizer, sharpened(transformer))


def pixart(sigma: bool) -> DiffusionPipeline:
    sentencepiece = t5_tokenizer()
    transformer = PixArtTransformer2DModel(
        sample_size=8,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        caption_channels=WIDTH,
        in_channels=4,
        cross_attention_dim=24,
        out_channels=8,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
        norm_eps=1e-6,
        attention_bias=True,
        activation_fn="gelu-approximate",
        use_additional_conditions=False,
    )
    made = PixArtSigmaPipeline if sigma else PixArtAlphaPipeline
    pipe: DiffusionPipeline = made(
        tokenizer=sentencepiece,
        text_encoder=t5_encoder(sentencepiece),
        vae=autoencoder(),
        transformer=sharpened(transformer),
        scheduler=DPMSolverMultistepScheduler(),
    )
    return pipe


def prior_network() -> PriorTransformer:
    network = sharpened(
        PriorTransformer(
            num_attention_heads=2,
            attention_head_dim=12,
            embedding_dim=WIDTH,
            num_layers=2,
            num_embeddings=32,
            additional_embeddings=4,
        )
    )
    torch.nn.init.ones_(network.clip_std)  # fresh, it is zero, and so is the answer whatever the layers do
    return network


def added_keys_unet(**more: object) -> UNet2DConditionModel:
    return sharpened(
        unet(
            3,
            out_channels=6,
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            resnet_time_scale_shift="scale_shift",
            **more,
        )
    )


def unclip() -> DiffusionPipeline:
    tokenizer = clip_tokenizer()
    projection = UnCLIPTextProjModel(
        clip_embeddings_dim=WIDTH, time_embed_dim=64, clip_extra_context_tokens=4, cross_attention_dim=WIDTH
    )
    small = {
        "sample_size": 16,
        "layers_per_block": 1,
        "down_block_types": ("ResnetDownsampleBlock2D",) * 2,
        "up_block_types": ("ResnetUpsampleBlock2D",) * 2,
        "block_out_channels": (16, 32),
        "norm_num_groups": 8,
        "in_channels": 6,
        "out_channels": 3,
    }
    return UnCLIPPipeline(
        prior=prior_network(),
        decoder=added_keys_unet(class_embed_type="identity"),
        text_encoder=clip_encoder(True, tokenizer),
        tokenizer=tokenizer,
        text_proj=projection,
        super_res_first=UNet2DModel(**small),
        super_res_last=UNet2DModel(**small),
        prior_scheduler=UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="sample"),
        decoder_scheduler=UnCLIPScheduler(variance_type="learned_range", prediction_type="epsilon"),
        super_res_scheduler=UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="epsilon"),
    )


def kandinsky_prior() -> DiffusionPipeline:
    tokenizer = clip_tokenizer()
    vision = CLIPVisionModelWithProjection(
        CLIPVisionConfig(
            hidden_size=WIDTH,
            image_size=16,
            patch_size=8,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=37,
            projection_dim=WIDTH,
        )
    )
    processor = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    return KandinskyV22PriorPipeline(
        prior_network(),
        vision,
        clip_encoder(True, tokenizer),
        tokenizer,
        UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="sample", clip_sample=True),
        processor,
    )


def kandinsky_decoder() -> DiffusionPipeline:
    network = sharpened(
        unet(
            4,
            out_channels=8,
            addition_embed_type="image",
            encoder_hid_dim=WIDTH,
            encoder_hid_dim_type="image_proj",
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            resnet_time_scale_shift="scale_shift",
        )
    )
    movq = VQModel(
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        num_vq_embeddings=8,
        vq_embed_dim=4,
        norm_type="spatial",
    )
    return KandinskyV22Pipeline(network, DDPMScheduler(variance_type="learned_range"), movq)


def ddpm() -> DiffusionPipeline:
    network = UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return DDPMPipeline(sharpened(network), DDPMScheduler())


def dit() -> DiffusionPipeline:
    network = DiTTransformer2DModel(
        sample_size=8,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        num_embeds_ada_norm=1000,
    )
    return DiTPipeline(sharpened(network), autoencoder(), scheduler())


FAMILIES: dict[str, Callable[[], DiffusionPipeline]] = {
    "sd": sd,
    "sdxl": sdxl,
    "sdxl-refiner": sdxl_refiner,
    "sd3": sd3,
    "sd3-without-t5": sd3,
    "sd3.5": lambda: sd3(dual=True),
    "flux": flux,
    "flux2": flux2,
    "pixart-alpha": lambda: pixart(False),
    "pixart-sigma": lambda: pixart(True),
    "unclip": unclip,
    "kandinsky-prior": kandinsky_prior,
    "kandinsky-decoder": kandinsky_decoder,
    "instruct-pix2pix": instruct_pix2pix,
    "pag": pag,
    "ddpm": ddpm,
    "dit": dit,
}


def saved(name: str, folder: Path) -> Path:
    """Make a family's pipeline and save it."""
    torch.manual_seed(0)
    FAMILIES[name]().save_pretrained(folder)
    return folder


def loaded(name: str, folder: Path) -> DiffusionPipeline:
    """Load it as its users do."""
    if name == "sd3-without-t5":
        pipe: DiffusionPipeline = DiffusionPipeline.from_pretrained(folder, text_encoder_3=None, tokenizer_3=None)
    else:
        pipe = denoscope.load(folder, "cpu")
    pipe.set_progress_bar_config(disable=True)
    return pipe
