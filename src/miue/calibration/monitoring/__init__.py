"""Watching a deployed model: are new bags still like those of its calibration?"""

from miue.calibration.monitoring.batch import Batch, watched_scores
from miue.calibration.monitoring.course import Course, monitor
from miue.calibration.monitoring.folder import add_batches, batch_names

__all__ = ["Batch", "Course", "add_batches", "batch_names", "monitor", "watched_scores"]
