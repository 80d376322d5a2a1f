"""Run by test_emit_ray.py: a Ray of two nodes, one labelled as the text on standard input says. Prints where tasks ran."""

import json
import re
import sys

import ray
from ray._private.label_utils import parse_node_labels_string
from ray.cluster_utils import Cluster

TASKS = 12
NO_CLUSTER = 77
SMALL = {"num_cpus": 2, "object_store_memory": 80 << 20}


def where() -> str:
    return ray.get_runtime_context().get_node_id()


def _has_started(cluster: Cluster, labels: dict[str, str], resources: dict[str, float]) -> bool:
    """Ray gives each node half a minute, and no way to ask for more: a machine that does much else is too slow."""
    try:
        cluster.add_node(**SMALL, include_dashboard=False)
        cluster.add_node(**SMALL, labels=labels, resources=resources)
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        return False
    return True


def main() -> None:
    text = sys.stdin.read()
    said: dict[str, dict] = {}
    exec(text, said)
    # As `ray start` would read them.
    labels = parse_node_labels_string(re.findall(r'--labels="(.+?)"', text)[0])
    resources = json.loads(re.findall(r"--resources='(.+?)'", text)[0])
    cluster = Cluster()
    try:
        if not _has_started(cluster, labels, resources):
            sys.exit(NO_CLUSTER)
        ray.init(address=cluster.address, log_to_driver=False)
        capable = {node["NodeID"] for node in ray.nodes() if labels.items() <= node["Labels"].items()}
        by_label = ray.remote(label_selector=said["LABEL_SELECTOR"], num_cpus=1)(where)
        by_resource = ray.remote(resources=said["RESOURCES"], num_cpus=1)(where)
        found = {
            "nodes": len(ray.nodes()),
            "capable": sorted(capable),
            "by label": sorted(set(ray.get([by_label.remote() for _ in range(TASKS)]))),
            "by resource": sorted(set(ray.get([by_resource.remote() for _ in range(TASKS)]))),
        }
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
