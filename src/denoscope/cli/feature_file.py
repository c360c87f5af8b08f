"""``features.nc``: what layers gave out, a group for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def write_features(features: "Mapping[str, xr.Dataset]", path: Path) -> None:
    """Write one netCDF-4 group a layer, under the layer's dotted name; float32, as netCDF has no float16."""
    for layer, pooled in features.items():
        encoding = {name: {"zlib": True, "complevel": 4, "shuffle": True} for name in pooled.data_vars}
        pooled.astype("float32").to_netcdf(
            path, mode="a" if path.exists() else "w", group=layer, engine="h5netcdf", encoding=encoding
        )
