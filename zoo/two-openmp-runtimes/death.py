"""Two packages that each bring Intel's OpenMP: the second copy finds the first, and ends the process."""

import ctypes
import shutil

from zoo import native
from zoo.keeper import LIBIOMP5

of_another_package = native.directory() / "libiomp5-1f2e3d.so"
if not of_another_package.exists():
    unfinished = native.unfinished(of_another_package)
    shutil.copy(LIBIOMP5, unfinished)
    unfinished.rename(of_another_package)


def die(item: int) -> None:
    for runtime in (LIBIOMP5, of_another_package):
        ctypes.CDLL(str(runtime)).omp_get_max_threads()
