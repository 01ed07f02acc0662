"""Networks over continuous-time graphs: they read temporal neighbourhoods that a sampler drew."""

from dgbench.models.ctdg.base import Features, SampledHop, StreamModel
from dgbench.models.ctdg.build import STREAM_MODELS, build_stream_model
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.models.ctdg.tgn import MemoryRows, Tgn

__all__ = [
    "STREAM_MODELS",
    "Features",
    "LinkPredictor",
    "MemoryRows",
    "SampledHop",
    "StreamModel",
    "Tgn",
    "build_stream_model",
]
