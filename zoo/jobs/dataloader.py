"""A job on torch's DataLoader: 32 items in batches of 4, 2 workers."""

from items import ITEMS, death, work
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return work(index)


if __name__ == "__main__":
    death()
    batches = DataLoader(Squares(), batch_size=4, num_workers=2)
    print("sum", sum(int(batch.sum()) for batch in batches))
