"""Where words and places stand in the layers of each tiny family."""

from family_calls import TEXT
from held_against import Layout

FLUX = Layout(TEXT["flux"], row=0, order="text, then places", text=512, patch=2)
SD3 = Layout(TEXT["sd3"], order="places, then text", patch=2)

LAYOUTS: dict[str, Layout] = {
    "sd": Layout(TEXT["sd"]),
    "sdxl": Layout(TEXT["sdxl"]),
    "sdxl-refiner": Layout(TEXT["sdxl-refiner"]),
    "sd3": SD3,
    "sd3-without-t5": Layout(TEXT["sd3-without-t5"], order="places, then text", patch=2),
    "sd3.5": SD3,
    "flux": FLUX,
    "flux2": Layout(TEXT["flux2"], row=0, order="text, then places", calls=2, text=512),
    "pixart-alpha": Layout(TEXT["pixart-alpha"]),
    "pixart-sigma": Layout(TEXT["pixart-sigma"]),
    "unclip": Layout(TEXT["unclip"], order="keys added in front"),
    "kandinsky-prior": Layout(TEXT["kandinsky-prior"], order="answer last"),
    "kandinsky-decoder": Layout(TEXT["kandinsky-decoder"], order="keys added in front"),
    "instruct-pix2pix": Layout(TEXT["instruct-pix2pix"], row=0),
    "pag": Layout(TEXT["pag"]),
    "ddpm": Layout(None, row=0),
    "dit": Layout(None, row=0),
}
"""By the names of ``FAMILIES``."""
