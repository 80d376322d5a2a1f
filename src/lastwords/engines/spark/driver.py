"""In the driver: a SparkContext gets our settings as it is made, and tells of hidden deaths as it is stopped.

`adapt` is called when pyspark's context module has been imported under `lastwords run`, and by `configure`.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
from dataclasses import replace
from types import ModuleType
from typing import Any

from lastwords.engines.contract import log
from lastwords.engines.spark import ENGINE, report
from lastwords.engines.spark.settings import Declined, Wishes, additions

_wishes = Wishes()


def wish(wishes: Wishes) -> None:
    global _wishes
    _wishes = wishes


@ENGINE.guarded
def adapt(module: ModuleType) -> None:
    context = getattr(module, "SparkContext", None)
    # pyspark 4 keeps the class in pyspark.core.context, and pyspark.context hands the same one out.
    if context is None or context.__dict__.get("_lastwords"):
        return
    context._lastwords = True
    _settle_before_init(context, module.SparkConf)
    _report_before_stop(context)


def _settle_before_init(context: Any, conf_class: Any) -> None:
    init = context._do_init
    signature = inspect.signature(init)

    @functools.wraps(init)
    def _do_init(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        conf = ENGINE.guarded(_settled)(context, conf_class, bound.arguments)
        if conf is not None:
            bound.arguments["conf"] = conf
        return init(*bound.args, **bound.kwargs)

    context._do_init = _do_init


def _settled(context: Any, conf_class: Any, given: dict[str, Any]) -> Any:
    """The configuration as Spark would put it together, with ours added; None: leave it as it is."""
    if given.get("jsc") is not None:  # made elsewhere, and past changing
        return None
    ENGINE.is_tested(_version())
    conf = _merged(context, conf_class, given.get("conf"))
    if given.get("master"):
        conf.set("spark.master", given["master"])
    try:
        added = additions(conf.get, _wishes_here())
    except Declined as declined:
        log(f"Spark: deaths of Python workers will not be explained: {declined}")
        return None
    for name, value in added.items():
        conf.set(name, value)
    return conf


def _merged(context: Any, conf_class: Any, given: Any) -> Any:
    """As SparkContext does it, but in a copy: the user's object stays the user's."""
    if given is not None and given._jconf is not None:
        return conf_class(_jconf=given._jconf.clone())
    conf = conf_class(_jvm=context._jvm)
    for name, value in given.getAll() if given is not None else ():
        conf.set(name, value)
    return conf


def _wishes_here() -> Wishes:
    """Those of `configure`, else those of the environment."""
    place = os.environ.get("LASTWORDS_COLLECT")
    # An executor works in a directory of its own: there a relative path is another one.
    collect = os.path.abspath(place) if place and "://" not in place else place
    if _wishes != Wishes():
        return replace(_wishes, collect=collect)
    after = os.environ.get("LASTWORDS_SPARK_HANG_AFTER")
    return Wishes(float(after) if after else None, bool(os.environ.get("LASTWORDS_SPARK_KILL_HUNG")), collect)


def _version() -> str:
    from pyspark.version import __version__

    return str(__version__)


def _report_before_stop(context: Any) -> None:
    stop = context.stop

    @functools.wraps(stop)
    def stop_told(self: Any) -> Any:
        ENGINE.guarded(report.tell)(self)
        return stop(self)

    context.stop = stop_told
    # A job that stops nothing is stopped by the end of its process; what it has hidden is told all the same.
    atexit.register(lambda: ENGINE.guarded(report.tell)(context._active_spark_context))
