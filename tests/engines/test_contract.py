"""The promises of engines/contract.py that hold for every adapter."""

from __future__ import annotations

from lastwords.engines.contract import Engine


def test_what_fails_is_off_and_says_so_once(capsys):
    engine = Engine("Bench", tested=("1.0",))
    calls = []

    @engine.guarded
    def adapter(number):
        calls.append(number)
        raise RuntimeError("changed\nsince")

    assert adapter(1) is None and adapter(2) is None
    assert calls == [1], "an adapter that has failed is not called again"
    assert capsys.readouterr().err == (
        "lastwords: Bench: off in this process, and the job goes on without: adapter: RuntimeError: changed since\n"
    )


def test_results_and_interruptions_pass():
    engine = Engine("Bench", tested=())
    assert engine.guarded(lambda: 7)() == 7

    @engine.guarded
    def interrupted():
        raise KeyboardInterrupt

    try:
        interrupted()
    except KeyboardInterrupt:
        assert engine.is_on
    else:
        raise AssertionError("Ctrl-C must reach the job")


def test_untested_versions_warn_once(capsys):
    engine = Engine("Bench", tested=("3.5", "4.3"))
    assert engine.is_tested("4.3.1") and engine.is_tested("3.5")
    assert capsys.readouterr().err == ""
    assert not engine.is_tested("4.30.0") and not engine.is_tested("4.30.0")
    said = "lastwords: Bench 4.30.0 is not among the tested versions (3.5, 4.3): trying\n"
    assert capsys.readouterr().err == said


def test_a_closed_log_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    engine = Engine("Bench", tested=())
    engine.off("no reason")
    assert engine.guarded(lambda: "called")() is None
