"""ConversionReview: the request, and valid and invalid responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.call.call import MAX_BODY
from atoll.machinery.apiserver.conversion import review
from atoll.machinery.apiserver.conversion.review import ReviewError
from atoll.machinery.kinds.conversion import Conversion, Webhook
from atoll.machinery.meta.objects import Object, encode_json

V2 = "example.com/v2"


def finish(obj: Object) -> Object:
    return {**obj, "finished": True}


CONVERSION = Conversion(Webhook("https://x", b"", ("v1",)), "mark", "Foo", V2, False, {V2: finish})
ORIGINAL: Object = {
    "apiVersion": "example.com/v1",
    "kind": "Foo",
    "spec": {},
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"kcp.io/cluster": "c", "x": "y"}},
}


def adopted(converted: Any) -> Object:
    raw = msgspec.Raw(encode_json(converted))
    found: Object = json.loads(review.adopted(CONVERSION, encode_json(ORIGINAL), raw, V2, 0))
    return found


def test_the_first_version_known_to_both_is_spoken() -> None:
    assert review.version_of(("v2", "v1beta1", "v1")) == "v1beta1"
    assert review.version_of(("v1", "v1beta1")) == "v1"


def test_a_question_holds_the_objects_as_they_are() -> None:
    question = json.loads(review.request("v1", "id", V2, [encode_json(ORIGINAL)]))
    assert question == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "id", "desiredAPIVersion": V2, "objects": [ORIGINAL]},
    }


def answer(**more: Any) -> Object:
    response = {"uid": "id", "convertedObjects": [{}], "result": {"status": "Success"}, **more}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


@pytest.mark.parametrize(
    ("body", "failure", "text"),
    [
        (b"", review.MALFORMED, "is no ConversionReview"),
        (b"[" * 100_000, review.MALFORMED, "is no ConversionReview"),
        (b"[]", review.MALFORMED, "is no ConversionReview"),
        (b'{"response":{"convertedObjects":{}}}', review.MALFORMED, "is no ConversionReview"),
        (encode_json({**answer(), "apiVersion": "apiextensions.k8s.io/v1beta1"}), review.MALFORMED, "expected webhook"),
        (encode_json(answer(uid="other")), review.MALFORMED, 'failed: expected response.uid="id", got "other"'),
        (
            encode_json(answer(result={"status": "Failure"})),
            review.MALFORMED,
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (encode_json(answer(result=None)), review.MALFORMED, "failed: response.result.status was ''"),
        (
            encode_json(answer(result={"status": "Failure", "message": "m" * 5000})),
            review.MALFORMED,
            "failed: " + "m" * review.MAX_MESSAGE,
        ),
        (encode_json(answer(convertedObjects=[{}, {}])), review.PARTIAL, "returned 2 objects, expected 1"),
        (encode_json(answer(convertedObjects=None)), review.PARTIAL, "returned 0 objects, expected 1"),
    ],
)
def test_an_answer_that_is_none_is_refused(body: bytes, failure: str, text: str) -> None:
    with pytest.raises(ReviewError) as caught:
        review.objects("v1", "id", body, 1)
    assert caught.value.failure == failure
    assert text in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_the_older_review_is_taken_without_its_envelope() -> None:
    body = {"response": {"convertedObjects": [{}], "result": {"status": "Success"}}}
    assert len(review.objects("v1beta1", "id", encode_json(body), 1)) == 1


def converted(**more: Any) -> Object:
    metadata = {"name": "a", "namespace": "n", "uid": "u", **more.pop("metadata", {})}
    return {"apiVersion": V2, "kind": "Foo", "metadata": metadata, "spec": {"b": 1}, **more}


def test_a_converted_object_is_finished_and_keeps_its_metadata() -> None:
    found = adopted(converted(metadata={"labels": {"l": "1"}, "annotations": {"z": "1"}, "finalizers": ["x/y"]}))
    assert found == {
        "apiVersion": V2,
        "kind": "Foo",
        "spec": {"b": 1},
        "finished": True,
        "metadata": {
            "name": "a",
            "namespace": "n",
            "uid": "u",
            "labels": {"l": "1"},
            "annotations": {"kcp.io/cluster": "c", "z": "1"},
        },
    }


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: None, "it is not an object"),
        (lambda: converted(apiVersion="example.com/v3"), "invalid groupVersion (expected example.com/v2, received"),
        (lambda: converted(kind="Bar"), "invalid kind (expected Foo, received Bar)"),
        (lambda: {**converted(), "metadata": None}, "missing metadata in converted object"),
        (lambda: converted(metadata={"name": "b"}), "must have the same name: a != b"),
        (lambda: converted(metadata={"namespace": "m"}), "must have the same namespace: n != m"),
        (lambda: converted(metadata={"uid": ""}), "must have the same UID: u != "),
        (lambda: converted(metadata={"labels": {"a": 1}}), "metadata.labels[a] must be a string"),
        (lambda: converted(metadata={"labels": []}), "metadata.labels: invalid type list"),
        (lambda: converted(metadata={"annotations": {"a b": "c"}}), "metadata.annotations: Invalid value"),
        (lambda: converted(spec={"big": "x" * MAX_BODY}), f"it is larger than {MAX_BODY} bytes"),
    ],
)
def test_a_converted_object_that_is_another_is_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ReviewError) as caught:
        adopted(make())
    assert caught.value.failure == review.INVALID
    assert text in str(caught.value)


def test_an_object_without_end_is_refused() -> None:
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    with pytest.raises(ReviewError, match="nested too deeply"):
        review.adopted(CONVERSION, encode_json(ORIGINAL), msgspec.Raw(deep), V2, 0)
