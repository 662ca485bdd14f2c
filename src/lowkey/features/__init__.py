"""Public feature maps: functions of single rows that need no training data, computed once by every client."""

from __future__ import annotations

from lowkey.features.affine import Centred, Constant
from lowkey.features.maps import Chain, FeatureMap, Shape
from lowkey.features.norms import GroupNorm, UnitNorm
from lowkey.features.projection import Hashing, Projection
from lowkey.features.scattering import Scattering
from lowkey.registry import Registry

FEATURES: Registry[type[FeatureMap]] = Registry(
    "features.kind",
    {one.kind: one for one in (Scattering, GroupNorm, UnitNorm, Constant, Centred, Projection, Hashing)},
)

__all__ = [
    "FEATURES",
    "Centred",
    "Chain",
    "Constant",
    "FeatureMap",
    "GroupNorm",
    "Hashing",
    "Projection",
    "Scattering",
    "Shape",
    "UnitNorm",
]
