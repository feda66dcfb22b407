"""Watching a deployed model: are new bags still like those of its calibration?"""

from miue.monitoring.batch import Batch
from miue.monitoring.course import Course, monitor

__all__ = ["Batch", "Course", "monitor"]
