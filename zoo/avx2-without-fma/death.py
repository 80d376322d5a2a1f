"""faiss picks its build for AVX2 on a CPU that has AVX2 and no FMA: import and add work, search does not.

A loader that asks for one feature and a compiler that used two is how this happens on real hosts, mostly virtual ones.
"""

import os

os.environ["FAISS_OPT_LEVEL"] = "AVX2"
os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import numpy as np

SIZE = 64
vectors = np.arange(100 * SIZE, dtype=np.float32).reshape(100, SIZE)
index = faiss.IndexFlatL2(SIZE)
index.add(vectors)


def die(item: int) -> None:
    index.search(vectors[item : item + 1], 3)
