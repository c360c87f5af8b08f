"""The recipe of the embedded model ``shapes``: autoencoder, text encoder, denoiser."""
