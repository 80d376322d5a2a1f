"""Apache Spark. The map is in ../README.md; users come in by `lastwords.spark`."""

from lastwords.engines.contract import Engine

ENGINE = Engine("Spark", tested=("3.5", "4.3"))
