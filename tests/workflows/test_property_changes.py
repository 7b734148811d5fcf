"""Versions of properties as changes, against the versions themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actorflow.workflows.instance.canonical import same
from actorflow.workflows.instance.property_changes import as_changes, as_versions
from actorflow.workflows.instance.state import PropertiesAt

SCALARS = st.sampled_from([0, 1, True, False, 1.0, "", "a", None])
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.just("k"), SCALARS)
PROPERTIES = st.dictionaries(st.sampled_from("abc"), VALUES)


@given(first=PROPERTIES, steps=st.lists(st.tuples(st.sampled_from("abc"), SCALARS | VALUES)))
def test_changes_lead_to_the_same_versions(
    first: dict[str, Any], steps: list[tuple[str, Any]]
) -> None:
    versions = [PropertiesAt(0, first)]
    for key, (name, value) in enumerate(steps, 1):
        values = dict(versions[-1].values)
        if value is None:
            values.pop(name, None)
        elif isinstance(values.get(name), list) and not isinstance(value, list):
            values[name] = [*values[name], value]
        else:
            values[name] = value
        versions.append(PropertiesAt(key, values))
    changes = as_changes(versions, 1)
    found = [versions[0], *as_versions(versions[0], changes)]
    assert [each.key for each in found] == [each.key for each in versions]
    assert all(same(one.values, two.values) for one, two in zip(found, versions, strict=True))


def test_a_list_that_grows_is_stored_once() -> None:
    versions = [PropertiesAt(at, {"items": ["x"] * at, "n": 1}) for at in range(5)]
    assert [each.added for each in as_changes(versions, 1)] == [{"items": ["x"]}] * 4
    assert [each.values for each in as_changes(versions, 1)] == [{}] * 4
