"""What the head sees of an image; PyTorch is imported when features are computed."""

from __future__ import annotations

from lowkey.features import Chain, FeatureMap, GroupNorm, Projection, Scattering, UnitNorm
from lowkey.tasks.fashion_mnist import SCATTERED
from lowkey.tasks.task import Study


def features(study: Study) -> str:
    """The map of the head in words, with its digest; the network sees the image itself."""
    if study.model.kind == "cnn":
        return ""
    size = study.model.features
    return f"scattering, {size} numbers of an image, sha256 {feature_map(size).digest}"


def feature_map(size: int) -> FeatureMap:
    """What the head sees of an image, as so many numbers; public, and the same for everybody."""
    projected = () if size == SCATTERED else (Projection(size=size),)
    return Chain((Scattering(image=(28, 28)), GroupNorm(groups=27), UnitNorm(), *projected, UnitNorm(at_most=True)))
