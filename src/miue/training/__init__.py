"""Training: a job is trained in a run; what other packages use of it."""

from __future__ import annotations

from miue.training.job import Job, handed_over, read_job
from miue.training.notes import keep_in_memory, question_negative_class, say_method, warn_of_bags
from miue.training.run import Run, check_trackers
from miue.training.run_folder import changed_setting, changes
from miue.training.train import train_job, train_labels, train_seeds

__all__ = [
    "Job",
    "Run",
    "changed_setting",
    "changes",
    "check_trackers",
    "handed_over",
    "keep_in_memory",
    "question_negative_class",
    "read_job",
    "say_method",
    "train_job",
    "train_labels",
    "train_seeds",
    "warn_of_bags",
]
