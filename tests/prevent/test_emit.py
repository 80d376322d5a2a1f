"""What is emitted for schedulers: parsed, and where it is a script, run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from lastwords.prevent import emit, features
from lastwords.prevent.emit import spark
from lastwords.prevent.fleet import Host
from lastwords.prevent.require import usable_features
from lastwords.prevent.scan_model import Library

OLD = Host(host="node-old", features=("sse4_2", "avx", "popcnt"))
NEW = Host(host="node-new", features=("sse4_2", "avx", "avx2", "fma", "popcnt", "bmi2"))
FAISS = Library(
    path="/env/_swigfaiss_avx2.so", package="faiss-cpu", version="1.9.0", needs=("avx", "avx2", "fma")
)
HNSW = Library(path="/env/hnswlib.so", package="hnswlib", version="0.8", needs=("avx", "avx2", "fma"))
POPCNT = Library(path="/env/x.so", package="x", version="1", needs=("popcnt", "bmi2", "sse2"))
PLAIN = Library(path="/env/plain.so", package="plain", needs=("sse2",))


def test_the_targets_are_the_files():
    assert set(emit.KINDS) == {"k8s", "nomad", "ray", "slurm", "spark"}
    with pytest.raises(emit.UnknownTarget, match="k8s"):
        emit.emit("swarm", [])
    with pytest.raises(emit.UnknownTarget):
        emit.emit("_need", [])


@pytest.mark.parametrize("kind", emit.KINDS)
def test_every_text_says_who_needs_what_and_who_lacks_it(kind):
    text = emit.emit(kind, [HNSW, PLAIN], [OLD, NEW])
    assert "avx2: hnswlib 0.8" in text
    assert "1 of 2 known hosts can run them" in text
    assert "not node-old: no avx2, no fma" in text
    assert text.endswith("\n")


@pytest.mark.parametrize("kind", emit.KINDS)
def test_nothing_needed_is_said_and_asks_for_nothing(kind):
    text = emit.emit(kind, [PLAIN], [OLD])
    assert "none beyond the baseline" in text
    assert "sse2" not in text
    assert emit.emit(kind, [], [])


@pytest.mark.parametrize("kind", emit.KINDS)
def test_names_cannot_break_out_of_their_comment(kind):
    evil = Library(
        path="/x", package="evil\nspark.master local; $(rm -rf /) `id`", version='"', needs=("avx2",)
    )
    host = Host(host="a b\n; reboot #", features=("avx2",))
    text = emit.emit(kind, [evil], [host])
    assert "\nspark.master" not in text
    assert "$(rm" not in text
    assert "`id`" not in text
    assert "; reboot" not in text


class TestLibrariesThatArePicked:
    """faiss loads one of its builds: what the others need is no business of the host's."""

    AVX512 = Library(
        path="/env/_swigfaiss_avx512.so",
        package="faiss-cpu",
        needs=("avx2", "avx512f", "avx512bw", "avx512vl"),
    )

    def features(self, *libraries: Library, hosts=()) -> tuple[str, ...]:
        return emit.need_of(libraries, hosts).features

    def test_the_loader_has_asked_for_it(self):
        assert self.features(self.AVX512) == ()
        assert self.features(FAISS) == ("fma",)

    def test_what_a_host_that_picks_it_lacks_counts(self):
        odd = Host(host="knl", features=("avx2", "fma", "avx512f"))
        need = emit.need_of([self.AVX512], [odd, NEW])
        assert need.features == ("avx512bw", "avx512vl")
        assert [host.host for host, _ in need.incapable] == ["knl", "node-new"]

    def test_what_the_chosen_cpu_was_found_to_lack_counts(self):
        presumed = Library(
            path="/env/_swigfaiss_avx2.so",
            package="faiss-cpu",
            needs=("avx2",),
            verdict="may-crash",
            missing=("fma",),
        )
        assert self.features(presumed) == ("fma",)

    def test_what_its_loader_takes_for_granted_counts(self):
        """faiss 1.9.0: `search` uses fma, and only avx2 was asked for."""
        granted = Library(path="/env/_swigfaiss_avx2.so", needs=("avx2",), dispatched=("fma",))
        assert self.features(granted) == ("fma",)

    def test_a_cpu_that_never_loads_it_does_not(self):
        forced = Library(
            path="/env/_swigfaiss_avx512.so", needs=("avx512f",), verdict="may-crash", missing=("avx512f",)
        )
        assert self.features(forced) == ()


class TestKubernetes:
    def rules(self, text: str) -> dict[str, list[str]]:
        spec = yaml.safe_load(text)["affinity"]["nodeAffinity"]
        (term,) = spec["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert {rule["operator"] for rule in term["matchExpressions"]} == {"In"}
        return {rule["key"]: rule["values"] for rule in term["matchExpressions"]}

    @pytest.mark.heavy
    @pytest.mark.parametrize("libraries", [[HNSW, POPCNT], [PLAIN], []])
    def test_kubernetes_own_schema_takes_it(self, libraries):
        schemas = pytest.importorskip("kubernetes_validate")
        spec = yaml.safe_load(emit.emit("k8s", libraries, [OLD, NEW]))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "job"},
            "spec": {"containers": [{"name": "main", "image": "python:3.12"}], **spec},
        }
        schemas.validate(pod, schemas.latest_version(), strict=True)
        for key in self.rules_of(spec):
            prefix, _, name = key.rpartition("/")
            assert re.fullmatch(r"[a-z0-9.-]{1,253}", prefix)
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", name)

    def rules_of(self, spec: dict) -> list[str]:
        affinity = spec["affinity"].get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
            "nodeSelectorTerms", []
        )
        return [rule["key"] for term in terms for rule in term["matchExpressions"]]

    def test_labels_of_node_feature_discovery(self):
        assert self.rules(emit.emit("k8s", [HNSW])) == {
            "kubernetes.io/arch": ["amd64"],
            "feature.node.kubernetes.io/cpu-cpuid.AVX2": ["true"],
            "feature.node.kubernetes.io/cpu-cpuid.FMA3": ["true"],
        }

    def test_what_it_hides_gets_our_own_label_and_the_command_that_sets_it(self):
        text = emit.emit("k8s", [POPCNT], [OLD, NEW])
        assert set(self.rules(text)) == {"kubernetes.io/arch", "lastwords/cpu-bmi2", "lastwords/cpu-popcnt"}
        assert (
            "kubectl label --overwrite node node-new lastwords/cpu-bmi2=true lastwords/cpu-popcnt=true"
            in text
        )

    def test_without_a_fleet_each_node_is_asked(self):
        text = emit.emit("k8s", [POPCNT])
        assert 'lastwords.require("bmi2", "popcnt")' in text
        assert '"$NODE_NAME"' in text

    @pytest.mark.parametrize(
        "name", ["bmi1", "bmi2", "f16c", "abm", "popcnt", "sse4_1", "sse4_2", "ssse3", "pni"]
    )
    def test_hidden_by_default(self, name):
        assert features.discovery_attribute(name) is None

    def test_labels_are_valid(self):
        valid = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
        from lastwords.prevent.emit.k8s import label

        assert all(valid.fullmatch(label(name)) for name in features.known())


class TestSpark:
    def need(self, *names: str) -> emit.Need:
        return emit.need_of([Library(path="/x.so", package="x", needs=names)], [OLD, NEW])

    def run(self, script: str, tmp_path, **environment: str) -> dict:
        path = tmp_path / "discover.sh"
        path.write_text(script)
        path.chmod(0o755)
        kept = {**os.environ, **environment}
        return json.loads(subprocess.run([path], capture_output=True, text=True, check=True, env=kept).stdout)

    def test_the_text_is_a_properties_file(self):
        lines = emit.emit("spark", [HNSW], [OLD, NEW]).splitlines()
        pairs = [line.split() for line in lines if not line.startswith("#")]
        assert pairs == [
            ["spark.executor.resource.avx2_fma.amount", "1"],
            ["spark.task.resource.avx2_fma.amount", spark.TASK_SHARE],
        ]

    def test_its_comments_give_the_other_files_back(self, tmp_path):
        text = emit.emit("spark", [HNSW])
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
        commands = [line[4:] for line in text.splitlines() if line.startswith("#   sed")]
        assert len(commands) == 2
        for command in commands:
            subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
        made = spark.parts(emit.need_of([HNSW]))
        script = tmp_path / "conf" / "lastwords-discover.sh"
        assert script.read_text() == made.discovery_script
        assert os.access(script, os.X_OK)
        assert (tmp_path / "conf" / "spark-env.sh").read_text() == made.environment

    @pytest.mark.parametrize("has_lastwords", [True, False])
    def test_the_script_finds_what_this_cpu_has(self, tmp_path, has_lastwords):
        python = {"PYSPARK_PYTHON": sys.executable if has_lastwords else "/nonexistent/python"}
        have = sorted(usable_features() & frozenset(features.known()) - features.baseline("x86_64"))
        if not have:
            pytest.skip("a CPU without any feature that has a name here")
        found = self.run(spark.parts(self.need(have[0])).discovery_script, tmp_path, **python)
        assert found == {
            "name": have[0],
            "addresses": [str(one) for one in range(os.sysconf("SC_NPROCESSORS_ONLN"))],
        }
        lacking = next(one for one in ("fma4", "sve2", "amx_fp16") if one not in usable_features())
        found = self.run(spark.parts(self.need(have[0], lacking)).discovery_script, tmp_path, **python)
        assert found["addresses"] == []

    def options(self, tmp_path, *names: str) -> str:
        made = spark.parts(self.need(*names))
        script = tmp_path / "lastwords-discover.sh"
        script.write_text(made.discovery_script)
        script.chmod(0o755)
        environment = {
            "PATH": os.environ["PATH"],
            "SPARK_CONF_DIR": str(tmp_path),
            "PYSPARK_PYTHON": "/nonexistent",
        }
        code = made.environment + 'printf %s "$SPARK_WORKER_OPTS"'
        return subprocess.run(
            ["sh", "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout

    def test_an_incapable_worker_omits_the_resource_entirely(self, tmp_path):
        lacking = next(one for one in ("fma4", "sve2", "amx_fp16") if one not in usable_features())
        assert self.options(tmp_path, lacking) == ""
        assert spark.parts(self.need("avx2")).worker_properties("/s", 2, is_capable=False) == ""

    def test_a_capable_worker_declares_it(self, tmp_path):
        have = sorted(usable_features() & frozenset(features.known()) - features.baseline("x86_64"))
        if not have:
            pytest.skip("a CPU without any feature that has a name here")
        options = self.options(tmp_path, have[0])
        assert f"-Dspark.worker.resource.{have[0]}.amount={os.sysconf('SC_NPROCESSORS_ONLN')}" in options
        assert f"discoveryScript={tmp_path}/lastwords-discover.sh" in options
        properties = spark.parts(self.need("avx2")).worker_properties("/s", 2, is_capable=True)
        assert (
            properties
            == "spark.worker.resource.avx2.amount 2\nspark.worker.resource.avx2.discoveryScript /s\n"
        )


def test_ray_s_lines_are_python():
    text = emit.emit("ray", [HNSW], [NEW])
    values: dict[str, object] = {}
    exec(text, values)
    values.pop("__builtins__")
    assert values == {
        "LABEL_SELECTOR": {"cpu-avx2": "true", "cpu-fma": "true"},
        "RESOURCES": {"avx2": 0.001, "fma": 0.001},
    }
    assert 'ray start --address="$RAY_HEAD" --labels="cpu-avx2=true,cpu-fma=true"' in text


def test_slurm_s_constraint():
    text = emit.emit("slurm", [HNSW], [OLD, NEW])
    assert [line for line in text.splitlines() if line.startswith("#SBATCH")] == [
        '#SBATCH --constraint="avx2&fma"'
    ]
    assert "NodeName=node-new Features=avx2,fma" in text


@pytest.mark.parametrize("name", features.known())
def test_slurm_takes_every_name(name: str):
    """In a constraint, & | * [ ] ( ) and , are operators; a feature's name is made of what is left."""
    text = emit.emit("slurm", [Library(path="/x", needs=(name,), architecture="riscv64")])
    for line in (line for line in text.splitlines() if line.startswith("#SBATCH")):
        (constraint,) = re.findall(r'^#SBATCH --constraint="(.+)"$', line)
        assert all(re.fullmatch(r"[A-Za-z][\w.-]*", one) for one in constraint.split("&")), line


def test_nomad_s_constraints():
    text = emit.emit("nomad", [HNSW])
    assert text.count("constraint {") == text.count("}\n") == 3
    assert 'attribute = "${meta.cpu_avx2}"' in text
    assert "nomad node meta apply cpu_avx2=true cpu_fma=true" in text
