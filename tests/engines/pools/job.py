"""Eight items in a pool of two, the sixth of which kills. Prints what the caller's own code caught."""

import json
import sys

from deaths import die


def work(number: int) -> int:
    if number == 5:
        die(sys.argv[2])
    return number


def futures():
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(work, range(8)))


def loky():
    from loky import get_reusable_executor

    return list(get_reusable_executor(2).map(work, range(8)))


def joblib():
    from joblib import Parallel, delayed

    return Parallel(2)(delayed(work)(number) for number in range(8))


def pool():
    from multiprocessing import Pool

    with Pool(2) as pool:
        return pool.map_async(work, range(8), chunksize=1).get(timeout=12)


def datasets():
    import datasets

    rows = datasets.Dataset.from_dict({"number": list(range(16))})
    return len(rows.map(lambda row: {"found": work(row["number"])}, num_proc=2))


if __name__ == "__main__":
    try:
        print(json.dumps({"result": globals()[sys.argv[1]]()}))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
        said = {
            "type": f"{type(error).__module__}.{type(error).__name__}",
            "message": str(error),
            "notes": getattr(error, "__notes__", []),
            "cause": str(error.__cause__ or ""),
        }
        print(json.dumps(said))
