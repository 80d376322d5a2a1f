"""torch gives up on a worker that gets a fifth of a CPU: the loader's time-out is long enough for a whole one."""

import time

from torch.utils.data import DataLoader, Dataset

WORK = 1.5


class Slow(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        until = time.process_time() + WORK
        while time.process_time() < until:
            pass
        return index


if __name__ == "__main__":
    print(list(DataLoader(Slow(), num_workers=1, timeout=3)))
