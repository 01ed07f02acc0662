"""Pure functions from graphs to graphs, features and scales."""

from dgbench.datasets.transforms.edge_life import edge_life
from dgbench.datasets.transforms.features import (
    degree_features,
    degree_targets,
    fit_width,
    lagged_features,
    random_features,
    standardise,
)
from dgbench.datasets.transforms.lives import EdgeLives
from dgbench.datasets.transforms.m_transform import m_transform, m_transform_features
from dgbench.datasets.transforms.normalise import factors
from dgbench.datasets.transforms.windows import equal_windows

__all__ = [
    "EdgeLives",
    "degree_features",
    "degree_targets",
    "edge_life",
    "equal_windows",
    "factors",
    "fit_width",
    "lagged_features",
    "m_transform",
    "m_transform_features",
    "random_features",
    "standardise",
]
