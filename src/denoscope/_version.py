"""The version of the package, read by the build and by run manifests."""

__version__ = "0.1.0"
