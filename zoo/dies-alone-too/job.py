"""Item 5 reads a record whose pointer stays null: in company it dies of that, and alone just the same."""

import lastwords
from zoo import records

if __name__ == "__main__":
    records.run(lastwords.Policy(on_poison="substitute", substitute=0), is_filled=False)
