"""`gunicorn web:app`: the master preloads nothing, so each process opens its own engine."""

bind = "0.0.0.0:8000"
workers = 4
worker_class = "asgi"  # gunicorn before version 24: uvicorn_worker.UvicornWorker
preload_app = False
graceful_timeout = 20
