"""The doctor's checks: what must hold for each, and what each says of machines that are not at hand."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from inspect import getdoc

import pytest
from msgspec.structs import replace

from lastwords.prevent import checks, doctor
from lastwords.prevent.checks import (
    Check,
    all_checks,
    c_library,
    cpu,
    disk,
    first_batches,
    gpu,
    hardware_history,
    hypervisor,
    libraries,
    memory,
    not_loaded,
    open_files,
    overcommit,
    pool_size,
    post_mortem,
    preemption,
    resource_limits,
    shared_memory,
    start_method,
    task_limit,
    thread_pools,
    time_limit,
)
from lastwords.prevent.finding import WORST_FIRST, Finding
from lastwords.prevent.gpus import Gpu, parse
from lastwords.prevent.job import Job
from lastwords.prevent.measured import Fork, ProcessMeasures, Trial
from lastwords.prevent.patient import Patient
from lastwords.prevent.room import MemoryRoom
from lastwords.prevent.scan_model import Library
from lastwords.prevent.sizing import Recommendation

MB, GB = 10**6, 10**9
JOB = Job(
    source="measured",
    words="64 items",
    workers=4,
    prefetch=2,
    batch_bytes=40 * MB,
    batch_tensors=2,
    main_bytes=600 * MB,
    worker_bytes=100 * MB,
    threads=20,
)
SUPPOSED = Job(source="supposed", words="2 workers", workers=2, batch_bytes=38 * MB, batch_tensors=2)
NO_WORKERS = Job(source="given", words="any job", workers=0)

every_check = pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.id)


def said(check, found, job: Job = JOB) -> list[Finding]:
    return list(check.judge(found, job))


def only(check, found, job: Job = JOB) -> Finding:
    (finding,) = said(check, found, job)
    return finding


class TestRegistry:
    def test_every_file_is_a_check(self):
        assert not_loaded() == ()
        assert len(all_checks()) >= 18

    def test_ids_are_unique(self):
        assert len({check.id for check in all_checks()}) == len(all_checks())

    @every_check
    def test_id_is_the_file_name(self, check: Check):
        module = import_module(f"{checks.__name__}.{check.id.replace('-', '_')}")
        assert module.CHECK is check
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", check.id)
        assert getdoc(module), "say what it is about"
        assert not check.title.endswith(".")

    @every_check
    def test_here_and_now_it_says_something_or_nothing_and_never_fails(self, check: Check, tmp_path):
        patient = Patient(str(tmp_path), asks_interpreter=False, scans=False)
        for job in (JOB, SUPPOSED, NO_WORKERS):
            for finding in doctor._look(check, patient, job):
                assert finding.check == check.id
                assert finding.severity in WORST_FIRST
                assert finding.says
                assert "\n" not in finding.says
                assert finding.severity in ("fine", "note") or finding.fixes

    def test_a_broken_check_becomes_a_line_and_the_rest_go_on(self, tmp_path, monkeypatch):
        (tmp_path / "broken.py").write_text("raise RuntimeError('half written')")
        monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
        checks._collected.cache_clear()
        try:
            report = doctor.examine(
                Patient(str(tmp_path), asks_interpreter=False, scans=False), SUPPOSED, "here"
            )
        finally:
            checks._collected.cache_clear()
        assert report.not_checked == ("broken: RuntimeError: half written",)
        assert len(report.findings) > 10

    def test_a_check_that_fails_on_this_machine_becomes_a_line(self, tmp_path, monkeypatch):
        def fail(patient):
            raise OSError("no such thing")

        broken = Check("broken", "broken", fail, lambda found, job: [])
        monkeypatch.setattr(doctor, "all_checks", lambda: (broken, shared_memory.CHECK))
        report = doctor.examine(Patient(str(tmp_path), asks_interpreter=False), SUPPOSED, "here")
        assert report.not_checked == ("broken: OSError: no such thing",)
        assert [finding.check for finding in report.findings] == ["shared-memory"]

    def test_the_worst_comes_first(self, tmp_path):
        report = doctor.examine(Patient(str(tmp_path), asks_interpreter=False, scans=False), SUPPOSED, "here")
        order = [WORST_FIRST.index(finding.severity) for finding in report.findings]
        assert order == sorted(order)


class TestSharedMemory:
    def at(self, free: int, used: int | None = None) -> shared_memory.SharedMemory:
        return shared_memory.SharedMemory(free, free, "file_descriptor", used)

    def test_batches_that_do_not_fit(self):
        found = only(shared_memory, self.at(64 * MB))
        assert found.severity == "kills"
        assert "4 workers × 2 batches ahead + 1 in the loop = 9 batches × 40.0 MB = 360 MB" in found.measured
        assert found.facts["needed"] == 360 * MB
        assert found.fixes[0].command == "docker run --shm-size=1g …"

    def test_the_fix_says_how_many_fit(self):
        fixes = only(shared_memory, self.at(300 * MB)).fixes
        assert "num_workers × prefetch_factor ≤ 5" in fixes[-1].text

    @pytest.mark.parametrize(("free", "severity"), [(400 * MB, "risk"), (500 * MB, "fine"), (8 * GB, "fine")])
    def test_too_near_and_enough(self, free, severity):
        assert only(shared_memory, self.at(free)).severity == severity

    def test_a_job_that_filled_it(self):
        assert only(shared_memory, self.at(64 * MB, used=64 * MB), NO_WORKERS).severity == "kills"

    def test_a_job_that_filled_it_between_two_looks(self):
        found = shared_memory.SharedMemory(64 * MB, 64 * MB, "file_descriptor", MB, was_deadly=True)
        said = only(shared_memory, found, NO_WORKERS)
        assert (said.severity, said.fixes[0].command) == ("kills", "docker run --shm-size=1g …")
        assert said.says == "/dev/shm has 64.0 MB, and the batches in flight filled it"

    def test_no_workers_need_none(self):
        assert only(shared_memory, self.at(MB), NO_WORKERS).severity == "fine"

    def test_none_at_all(self):
        assert only(shared_memory, shared_memory.SharedMemory(None, 0, None, None)).severity == "kills"


class TestOpenFiles:
    def test_a_job_that_ran_out_of_them_between_two_looks(self):
        found = only(open_files, open_files.OpenFiles(4096, 4096, None, 9, None, was_deadly=True))
        assert found.severity == "kills" and "died for want of one" in found.says

    def test_a_small_limit_is_a_risk_before_it_is_a_death(self):
        found = only(open_files, open_files.OpenFiles(256, 256, "file_descriptor", 9), SUPPOSED)
        assert found.severity == "risk"
        assert "each tensor that the loop keeps takes one" in found.says
        assert found.fixes[0].command == "docker run --ulimit nofile=65536 …"

    def test_a_limit_that_can_be_raised(self):
        found = only(open_files, open_files.OpenFiles(256, 1048576, None, 9), SUPPOSED)
        assert found.fixes[0].command == "ulimit -n 65536"

    def test_more_than_there_are(self):
        assert only(open_files, open_files.OpenFiles(32, 32, None, 40)).severity == "kills"

    def test_tensors_as_files_hold_none(self):
        found = only(open_files, open_files.OpenFiles(256, 256, "file_system", 9), SUPPOSED)
        assert "tensor that the loop keeps" not in found.says

    def test_enough_and_unlimited(self):
        assert only(open_files, open_files.OpenFiles(65536, None, None, 9)).severity == "fine"
        assert only(open_files, open_files.OpenFiles(None, None, None, 9)).severity == "fine"


class TestMemory:
    MACHINE = MemoryRoom("this machine", 64 * GB, 4 * GB)

    def test_a_group_that_is_too_small(self):
        group = MemoryRoom("/sys/fs/cgroup/memory/job", 1 << 30, 0)
        found = only(memory, memory.Memory((group, self.MACHINE)))
        assert found.severity == "kills"
        assert found.says.startswith("the memory limit here is 1 GiB")
        assert (
            "600 MB for the main process + 4 workers × 100 MB + 360 MB of batches in flight = 1.4 GB"
            in found.measured
        )
        assert "--memory=2g" in str(found.fixes[0].command)

    def test_fewer_workers_fit(self):
        found = only(memory, memory.Memory((MemoryRoom("/g", 1300 * MB, 0),)))
        assert found.fixes[-1].text == "or use fewer workers: 2 fit"

    def test_little_left_for_a_job_that_nobody_measured(self):
        assert only(memory, memory.Memory((MemoryRoom("/g", 1 << 30, 0),)), SUPPOSED).severity == "risk"

    def test_enough(self):
        assert only(memory, memory.Memory((self.MACHINE,))).severity == "fine"

    def test_a_job_that_was_killed_before_it_could_be_measured(self):
        killed = Job(source="measured", words="0 items", workers=4, memory_kills=1)
        found = only(memory, memory.Memory((MemoryRoom("/g", 1 << 30, 0), self.MACHINE)), killed)
        assert found.severity == "kills" and "the kernel killed the job" in found.says and found.fixes


@pytest.mark.parametrize(
    ("limit", "severity"), [(None, "fine"), (4096, "fine"), (120, "risk"), (110, "kills")]
)
def test_task_limit(limit, severity):
    assert only(task_limit, task_limit.Tasks(limit, 99, "/g/pids.max", 3, 2)).severity == severity


def test_resource_limits():
    free = dict.fromkeys(resource_limits.NAMES)
    assert only(resource_limits, {**free, "stack": 8 << 20}).severity == "fine"
    assert only(resource_limits, {**free, "stack": 1 << 20}).severity == "risk"
    assert only(resource_limits, {**free, "address space": 500 * MB}).severity == "kills"
    assert (
        only(resource_limits, {**free, "address space": 32 << 30}).fixes[0].command == "ulimit -v unlimited"
    )


def test_overcommit():
    assert only(overcommit, overcommit.Overcommit(0, 0, 10)).severity == "fine"
    assert only(overcommit, overcommit.Overcommit(2, 0, 64 * GB)).severity == "risk"
    assert only(overcommit, overcommit.Overcommit(2, 0, 2 * GB)).severity == "kills"


def test_post_mortem():
    assert only(post_mortem, post_mortem.PostMortem("core", 0, None, None, is_root=True)).severity == "fine"
    hidden = only(
        post_mortem, post_mortem.PostMortem("|/usr/bin/x", 0, 1, "Permission denied", is_root=False)
    )
    assert hidden.severity == "note"
    assert {fix.command for fix in hidden.fixes} == {
        "sysctl kernel.dmesg_restrict=0",
        "sysctl kernel.yama.ptrace_scope=0",
    }


def test_disk():
    full, few, good = (
        disk.Place(f"/{name}", free, 100 * GB, files, True)
        for name, free, files in [("full", 0, None), ("few", 50 * GB, 3), ("good", 50 * GB, 10**7)]
    )
    assert only(disk, (good,)).severity == "fine"
    assert only(disk, (full,)).severity == "kills"
    assert "inodes" in only(disk, (good, few)).says
    assert only(disk, (disk.Place("/ro", 50 * GB, 100 * GB, None, False),)).severity == "risk"


def test_cpu_features_that_programs_cannot_use():
    listed = frozenset({"sse4_2", "avx", "fma", "constant_tsc"})
    assert only(cpu, cpu.Cpu("X", "x86_64", listed, None)).severity == "fine"
    assert only(cpu, cpu.Cpu("X", "x86_64", listed, listed)).severity == "fine"
    off = only(cpu, cpu.Cpu("X", "x86_64", listed, frozenset({"sse4_2", "avx"})))
    assert off.severity == "risk"
    assert off.facts["off"] == ("fma",)


class TestHypervisor:
    def test_what_is_hidden(self):
        usual, usable = frozenset({"avx", "avx2", "fma"}), frozenset({"avx", "avx2"})
        found = only(hypervisor, hypervisor.Guest(True, "QEMU", "haswell", usual, usable))
        assert found.says.startswith("the hypervisor hides fma of this haswell")

    def test_nothing_hidden_not_known_and_not_virtual(self):
        some = frozenset({"avx"})
        for guest in (
            hypervisor.Guest(True, "QEMU", "haswell", some, some),
            hypervisor.Guest(True, "QEMU", None, frozenset(), some),
            hypervisor.Guest(False, "", "haswell", frozenset({"fma"}), some),
        ):
            assert only(hypervisor, guest).severity == "fine"

    @pytest.mark.parametrize(
        ("vendor", "family", "number", "kind"),
        [
            ("GenuineIntel", 6, 63, "haswell"),
            ("GenuineIntel", 6, 85, "skylake_avx512"),
            ("AuthenticAMD", 25, 17, "zen4"),
            ("GenuineIntel", 6, 9999, None),
            ("about", 6, 1, None),
            (None, None, None, None),
        ],
    )
    def test_models_by_their_numbers(self, vendor, family, number, kind):
        assert hypervisor.kind_of(vendor, family, number) == kind

    def test_every_kind_is_archspec_s(self):
        pytest.importorskip("archspec")
        table = json.loads(hypervisor.MODELS.read_text())
        kinds = {
            kind
            for vendor in table.values()
            if isinstance(vendor, dict)
            for one in vendor.values()
            for kind in one
        }
        assert kinds
        assert all(hypervisor.usual_features(kind) for kind in kinds)


def test_libraries():
    good = Library(path="/x/good.so", package="good")
    dead = Library(
        path="/x/dead.so", package="dead", verdict="will-crash", missing=("fma",), why="vfmadd in init"
    )
    maybe = Library(path="/x/maybe.so", verdict="may-crash", missing=("avx2",))
    assert only(libraries, (good,)).severity == "fine"
    kills, risk = said(libraries, (good, dead, maybe))
    assert (kills.severity, kills.says) == ("kills", "dead will crash on this CPU")
    assert "dead.so lacks fma: vfmadd in init" in kills.measured
    assert (risk.severity, risk.says) == ("risk", "maybe.so may crash on this CPU")


class TestCLibrary:
    def at(
        self, *versions: tuple[int, ...], needs=None, name="glibc 2.36", loaded=True
    ) -> c_library.CLibrary:
        copies = tuple((f"/{number}/libstdc++.so.6", version) for number, version in enumerate(versions))
        return c_library.CLibrary(name, copies, loaded, needs or {})

    def test_all_well(self):
        assert only(c_library, self.at()).says == "glibc 2.36"
        needs = {"/x.so": {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30)}}
        assert "enough for 1 libraries" in only(c_library, self.at((3, 4, 30), needs=needs)).says
        assert only(c_library, self.at(name="musl")).severity == "note"

    def test_a_library_from_a_newer_system(self):
        needs = {"/site/new.so": {"GLIBC": (2, 38)}, "/site/old.so": {"GLIBC": (2, 17)}}
        found = only(c_library, self.at(needs=needs))
        assert found.severity == "risk"
        assert found.says == "new.so cannot be loaded: GLIBC_2.38 is asked for, and there is 2.36"

    def test_a_newer_compiler(self):
        found = only(c_library, self.at((3, 4, 28), needs={"/x.so": {"GLIBCXX": (3, 4, 32)}}))
        assert "GLIBCXX_3.4.32" in found.says

    def test_two_copies_in_one_process(self):
        assert only(c_library, self.at((3, 4, 30), (3, 4, 28))).severity == "risk"
        assert only(c_library, self.at((3, 4, 30), (3, 4, 28), loaded=False)).severity == "fine"


class TestThreadPools:
    def pools(self, *libraries: str, threads: int | None = 2, cpus: float = 2.0):
        return thread_pools.Pools(libraries, threads, cpus, "the CPUs", 64, None)

    def test_two_kinds_of_openmp(self):
        found = only(thread_pools, self.pools("/t/libgomp-a34b3233.so.1", "/m/libiomp5.so"))
        assert found.severity == "risk"
        assert "2 different OpenMP runtimes" in found.says

    def test_the_same_twice(self):
        found = only(
            thread_pools, self.pools("/n/libscipy_openblas64_-6bb31eeb.so", "/s/libscipy_openblas-abc.so")
        )
        assert (found.severity, found.facts["copies"]) == ("note", 2)

    def test_a_thread_for_each_cpu_of_a_machine_that_is_shared(self):
        found = only(thread_pools, self.pools(threads=64, cpus=2.0))
        assert found.fixes[0].command == "export OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 MKL_NUM_THREADS=2"

    def test_too_many_workers(self):
        assert "4 workers share 1 CPUs" in only(thread_pools, self.pools(cpus=1.0)).says

    def test_all_well(self):
        assert only(thread_pools, self.pools("/t/libgomp.so.1", "/n/libopenblas.so")).severity == "fine"


class TestStartMethod:
    def tried(self, *, badly: bool = False, **fork) -> start_method.StartMethod:
        return start_method.StartMethod(None, Fork(**fork), was_tried=True, went_badly=badly)

    def test_a_gpu_in_the_parent(self):
        """What most training loops do is no alarm as long as it goes well."""
        assert only(start_method, self.tried(parent_threads=0, cuda=True)).severity == "note"
        assert only(start_method, self.tried(badly=True, parent_threads=0, cuda=True)).severity == "risk"

    def test_threads_in_the_parent(self):
        found = only(start_method, self.tried(parent_threads=2, names=("python", "loader")))
        assert found.severity == "risk"
        assert "loader, python" in found.measured[0] or "python, loader" in found.measured[0]

    def test_all_well(self):
        assert only(start_method, self.tried(parent_threads=0)).severity == "fine"
        assert only(start_method, start_method.StartMethod("spawn", None, was_tried=False)).severity == "fine"


class TestGpu:
    ROW = "NVIDIA H200, 9.0, 143771, 580.95.05, 0, 0, [N/A], 4\n"

    def test_the_driver_s_own_table(self):
        (card,) = parse(self.ROW)
        assert (card.name, card.compute_capability, card.driver) == ("NVIDIA H200", "9.0", "580.95.05")
        assert card.memory == 143771 << 20
        assert card.pages_to_retire is None

    @pytest.mark.parametrize("text", ["", "No devices were found\n", "a, b\n", "\0\n"])
    def test_what_is_no_table(self, text):
        assert parse(text) == ()

    def test_a_gpu_that_torch_was_not_built_for(self):
        card = Gpu(name="Tesla K80", compute_capability="3.7")
        found = only(gpu, gpu.Gpus((card,), None, True, "12.4", ("sm_75", "sm_80", "sm_90")))
        assert found.severity == "kills"

    def test_errors_of_its_memory(self):
        card = Gpu(name="A100", compute_capability="8.0", uncorrected_errors=3)
        assert only(gpu, gpu.Gpus((card,), None, True, "12.4", ("sm_80",))).severity == "risk"

    def test_a_driver_that_does_not_answer_and_no_gpu(self):
        assert only(gpu, gpu.Gpus((), "nvidia-smi ended with 9", True, None, ())).severity == "risk"
        assert only(gpu, gpu.Gpus((), None, False, None, ())).severity == "fine"

    @pytest.mark.parametrize(
        ("built", "capability", "runs"),
        [
            (("sm_80",), "8.6", True),
            (("sm_86",), "8.0", False),
            (("sm_80",), "9.0", False),
            (("compute_80",), "9.0", True),
            (("compute_90",), "8.0", False),
            (("sm_120",), "12.0", True),
            (("sm_90a",), "9.0", True),
            (("nonsense",), "9.0", False),
        ],
    )
    def test_machine_code_and_ptx(self, built, capability, runs):
        assert gpu.runs_on(built, capability) is runs


def test_hardware_history():
    lines = [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, MMU Fault",
        "mce: [Hardware Error]: Machine check events logged",
        "Memory cgroup out of memory: Killed process 12 (python) total-vm:1kB",
        "usb 1-1: new device",
    ]
    events = tuple(hardware_history.events(lines))
    assert [event.kind for event in events] == ["xid", "xid", "machine check", "memory kill"]
    broken, programs, kills = said(hardware_history, events)
    assert (broken.severity, broken.facts["events"]) == ("risk", 2)
    assert "Xid 31" in programs.says
    assert kills.facts["kills"] == 1
    assert only(hardware_history, ()).severity == "fine"


class TestTimeLimit:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04", 184), ("UNLIMITED", None), ("", None)],
    )
    def test_as_squeue_writes_it(self, text, seconds):
        assert time_limit.time_left(text) == seconds

    @pytest.mark.parametrize(
        ("words", "seconds"),
        [
            (["timeout", "90", "python"], 90),
            (["/usr/bin/timeout", "-k", "5s", "2h", "x"], 7200),
            (["timeout", "--signal=INT", "1.5m", "x"], 90),
            (["python", "30"], None),
            ([""], None),
        ],
    )
    def test_timeout_s_own_words(self, words, seconds):
        assert time_limit.of_timeout(words) == seconds

    def test_slurm_s_end(self, monkeypatch):
        monkeypatch.setattr(time, "time", lambda: 1000.0)
        limit = time_limit._slurm({"SLURM_JOB_END_TIME": "1600"})
        assert limit is not None
        assert limit.seconds == 600

    @pytest.mark.parametrize(("seconds", "severity"), [(-1, "kills"), (600, "risk"), (86400, "note")])
    def test_how_bad(self, seconds, severity):
        assert only(time_limit, (time_limit.Limit("Slurm ends the job", seconds, "x"),)).severity == severity
        assert only(time_limit, ()).severity == "fine"


class TestPreemption:
    @pytest.fixture
    def metadata(self):
        """The metadata services of three clouds, on loopback."""

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                pages = {
                    "/latest/api/token": "token",
                    "/latest/meta-data/instance-life-cycle": "spot",
                    "/latest/meta-data/spot/instance-action": '{"action": "terminate"}',
                    "/computeMetadata/v1/instance/scheduling/preemptible": "TRUE",
                    "/computeMetadata/v1/instance/preempted": "FALSE",
                }
                is_allowed = (
                    not self.path.startswith("/latest/meta-data") or self.headers["X-aws-ec2-metadata-token"]
                )
                body = pages.get(self.path) if is_allowed else None
                self.send_response(200 if body else 404)
                self.end_headers()
                self.wfile.write((body or "").encode())

            do_GET = do_PUT = answer  # noqa: N815  # as http.server wants them called

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()
        thread.join()

    def test_each_cloud_is_asked_in_its_own_words(self, metadata):
        assert preemption.ask("AWS", metadata) == (True, '{"action": "terminate"}')
        assert preemption.ask("Google Cloud", metadata) == (True, None)
        assert preemption.ask("Azure", metadata) == (None, None)

    def test_nobody_answers(self):
        assert preemption.ask("AWS", "http://127.0.0.1:9") == (None, None)

    def test_only_a_cloud_is_asked(self):
        assert preemption.cloud_of("Amazon EC2\n") == "AWS"
        assert preemption.cloud_of("LENOVO\n") is None

    @pytest.mark.parametrize(
        ("found", "severity"),
        [
            (preemption.Preemption("AWS", True, "terminate", False, None), "kills"),
            (preemption.Preemption("AWS", True, None, False, None), "note"),
            (preemption.Preemption(None, None, None, True, None), "note"),
            (preemption.Preemption(None, None, None, False, "2"), "note"),
            (preemption.Preemption("AWS", False, None, False, "0"), "fine"),
        ],
    )
    def test_what_is_said(self, found, severity):
        assert only(preemption, found).severity == severity


class TestTrialChecks:
    def trial(self, **changes) -> Trial:
        return Trial(
            **{"command": ("python", "a b.py"), "seconds": 3.0, "ended": "stopped", "items": 9, **changes}
        )

    def test_first_batches(self):
        bad = only(first_batches, self.trial(ended="exit code 1", is_failure=True, said=("RuntimeError: x",)))
        assert bad.severity == "kills"
        assert bad.fixes[0].command == "lastwords run -- python 'a b.py'"
        assert only(first_batches, self.trial(deaths=1)).severity == "kills"
        assert "must have lastwords" in only(first_batches, self.trial(items=0)).says
        assert "was done after 3.0 s" in only(first_batches, self.trial(items=0, ended="exit code 0")).says

    def test_first_batches_that_stand_still(self):
        still = self.trial(ended="too slow", stood_still=100.0)
        found = only(first_batches, still)
        assert found.severity == "risk"
        assert [fix.command for fix in found.fixes] == ["lastwords run --hang-after 60 -- python 'a b.py'"]
        assert only(first_batches, replace(still, causes=("shared-memory-full",))).severity == "kills"
        slow = replace(still, stood_still=2.0, main=ProcessMeasures(pid=1))
        assert only(first_batches, slow).severity == "fine"

    def test_pool_size(self):
        best = Recommendation(
            num_workers=6,
            prefetch_factor=2,
            batches_in_flight=13,
            memory_limit=1,
            shared_memory=1,
            arithmetic=("a", "b"),
        )
        assert only(pool_size, pool_size.PoolSize(2, best)).severity == "slow"
        assert only(pool_size, pool_size.PoolSize(8, best)).severity == "note"
        assert only(pool_size, pool_size.PoolSize(6, best)).severity == "fine"
