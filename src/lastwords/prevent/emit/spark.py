"""Spark: a resource that only capable workers offer, and that every executor and task asks for.

The text can be appended to spark-defaults.conf as it is. Its comments carry two more files, and how to take them out:
the discovery script, and lines for spark-env.sh. A worker that declares a resource and finds no address of it does
not start, so a worker that cannot run the libraries must not declare it at all: spark-env.sh asks the script first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent.emit._need import Need, comment, host_name, nothing_needed, text_of

ABOUT = "conf/spark-defaults.conf, with a discovery script and spark-env.sh lines in its comments"
SCRIPT = "conf/lastwords-discover.sh"
SCRIPT_MARK, ENVIRONMENT_MARK = "#script| ", "#env| "
# A task's share of an executor's one unit: so small that cores, and not the resource, limit how many run at once.
TASK_SHARE = "0.001"


@dataclass(frozen=True, slots=True)
class Parts:
    """What belongs where."""

    name: str
    discovery_script: str
    """Prints {"name", "addresses"}: one address for each CPU of a capable host, none on others."""
    environment: str
    """For spark-env.sh of every worker, capable or not."""
    defaults: str
    """Properties of the job."""

    def worker_properties(self, script: str, units: int, *, is_capable: bool) -> str:
        """For a worker that is started with --properties-file: nothing at all where it is not capable."""
        if not is_capable or not self.name:
            return ""
        prefix = f"spark.worker.resource.{self.name}"
        return f"{prefix}.amount {units}\n{prefix}.discoveryScript {script}\n"


def parts(need: Need) -> Parts:
    if nothing_needed(need):
        return Parts("", "", "", "")
    return Parts(need.name, text_of(_script(need)), text_of(_environment(need)), text_of(_defaults(need)))


def text(need: Need) -> str:
    if nothing_needed(need):
        return text_of(comment(need))
    made = parts(need)
    lines = comment(need)
    if need.capable:
        lines.append(f"# capable: {' '.join(host_name(host) for host in need.capable)}")
    lines += [
        "# on every worker, after these lines are in conf/spark-defaults.conf:",
        f"#   sed -n 's/^{SCRIPT_MARK}//p' conf/spark-defaults.conf > {SCRIPT} && chmod +x {SCRIPT}",
        f"#   sed -n 's/^{ENVIRONMENT_MARK}//p' conf/spark-defaults.conf >> conf/spark-env.sh",
        *made.defaults.splitlines(),
        "# where executors find their resources themselves (YARN, Kubernetes), with the script in their image, also:",
        f"#   spark.executor.resource.{made.name}.discoveryScript /path/to/{SCRIPT.rpartition('/')[2]}",
        *(SCRIPT_MARK + line for line in made.discovery_script.splitlines()),
        *(ENVIRONMENT_MARK + line for line in made.environment.splitlines()),
    ]
    return text_of(lines)


def _defaults(need: Need) -> Iterator[str]:
    yield f"spark.executor.resource.{need.name}.amount 1"
    yield f"spark.task.resource.{need.name}.amount {TASK_SHARE}"


def _script(need: Need) -> Iterator[str]:
    """Asks the workers' own Python where it has lastwords: it may be another CPU's (an emulator, a wrapper)."""
    wanted = " ".join(need.features)
    quoted = ", ".join(f'"{feature}"' for feature in need.features)
    yield "#!/bin/sh"
    yield f"# Offers the Spark resource {need.name} where the CPU has {wanted}."
    yield "# With lastwords in the workers' Python it is asked; without, /proc/cpuinfo is."
    yield "python=${PYSPARK_PYTHON:-python3}"
    yield "if \"$python\" -c 'import lastwords' 2>/dev/null; then"
    yield f"  \"$python\" -c 'import lastwords; lastwords.require({quoted})' 2>/dev/null && fits=yes"
    yield "else"
    yield "  flags=\" $(sed -n -e 's/^flags[[:space:]]*: //p' -e 's/^Features[[:space:]]*: //p' /proc/cpuinfo | head -n 1) \""
    yield "  fits=yes"
    yield f"  for feature in {wanted}; do"
    yield '    case "$flags" in *" $feature "*) ;; *) fits= ;; esac'
    yield "  done"
    yield "fi"
    yield "addresses="
    yield 'if [ -n "$fits" ]; then'
    yield "  count=$(getconf _NPROCESSORS_ONLN)"
    yield "  number=0"
    yield '  while [ "$number" -lt "$count" ]; do'
    yield '    addresses="$addresses${addresses:+, }\\"$number\\""'
    yield "    number=$((number + 1))"
    yield "  done"
    yield "fi"
    yield f'echo "{{\\"name\\": \\"{need.name}\\", \\"addresses\\": [$addresses]}}"'


def _environment(need: Need) -> Iterator[str]:
    yield f'lastwords_script="${{SPARK_CONF_DIR:-${{SPARK_HOME}}/conf}}/{SCRIPT.rpartition("/")[2]}"'
    yield 'case "$("$lastwords_script")" in *\'"0"\'*)'
    yield (
        '  SPARK_WORKER_OPTS="$SPARK_WORKER_OPTS'
        f" -Dspark.worker.resource.{need.name}.amount=$(getconf _NPROCESSORS_ONLN)"
        f' -Dspark.worker.resource.{need.name}.discoveryScript=$lastwords_script"'
    )
    yield "  export SPARK_WORKER_OPTS ;;"
    yield "esac"
