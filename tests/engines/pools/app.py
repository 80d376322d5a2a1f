"""A Celery application on files, and a WSGI one: each dies where it is asked to."""

import os

from deaths import die


def wsgi(environ, start_response):
    if environ["PATH_INFO"] == "/die":
        die("SIGSEGV")
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


if "CELERY_FILES" in os.environ:
    from celery import Celery

    place = os.environ["CELERY_FILES"]
    app = Celery("app", broker="filesystem://", backend=f"file://{place}/results")
    app.conf.broker_transport_options = {
        "data_folder_in": f"{place}/queue",
        "data_folder_out": f"{place}/queue",
        "control_folder": f"{place}/control",
    }
    app.conf.worker_hijack_root_logger = False

    @app.task(name="work")
    def work(how: str) -> None:
        die(how)
