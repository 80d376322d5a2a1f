"""A rank whose main function is recorded by torch itself."""

import torch.utils.data  # noqa: F401
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    raise ValueError("a value that nobody expected")


main()
