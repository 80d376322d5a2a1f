"""Item 5 reads what item 6 is just replacing, in memory that both workers share: alone, it passes."""

from zoo import records

if __name__ == "__main__":
    records.run(is_filled=True)
