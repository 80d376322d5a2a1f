"""`python -m lastwords` is `lastwords`."""

from lastwords.commands import main

if __name__ == "__main__":
    main()
