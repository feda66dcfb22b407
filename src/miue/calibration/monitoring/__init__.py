"""Watching a deployed model: are new bags still like those of its calibration?"""

from miue.calibration.monitoring.batch import Batch
from miue.calibration.monitoring.course import Course, monitor

__all__ = ["Batch", "Course", "monitor"]
