"""Datasets: arrays, files and ranges, split over agents and opened there without copying."""

from sapwood.data.dataset import Dataset
from sapwood.data.load import load
from sapwood.data.publish import Published
from sapwood.data.slice import Slice, SliceRef, open_slice

__all__ = ["Dataset", "Published", "Slice", "SliceRef", "load", "open_slice"]
