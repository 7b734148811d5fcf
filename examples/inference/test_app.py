"""Each request gets its own answer, and calls are shared."""

from __future__ import annotations

import asyncio

from examples.inference import app


def test_requests_share_calls_and_each_gets_its_own_answer() -> None:
    app.calls.clear()
    counts = asyncio.run(app.main())
    assert counts["classify"] < 200
    assert counts["embed"] < 100
    assert max(size for name, size in app.calls if name == "classify") <= 32
    tokens = sum(size for name, size in app.calls if name == "generate")
    assert tokens == sum(1 + number % 10 for number in range(100))
