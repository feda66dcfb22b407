"""Watching a deployed model: are new bags still like those of its calibration?"""

from miue.monitoring.course import Batch, Course, monitor

__all__ = ["Batch", "Course", "monitor"]
