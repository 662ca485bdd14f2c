"""Data sets and how they are divided among clients."""

from lowkey.data.fashion_mnist import ImageClients, ImageData, load_fashion_mnist
from lowkey.data.partition import Partition, by_ids, dirichlet_shards, iid_shards

__all__ = [
    "ImageClients",
    "ImageData",
    "Partition",
    "by_ids",
    "dirichlet_shards",
    "iid_shards",
    "load_fashion_mnist",
]
