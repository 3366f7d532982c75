"""Prints the changes of ConfigMaps in a workspace, with a plain NATS client."""

import asyncio
import json
import os
import ssl
import sys
import urllib.request

import nats

EVENTS = f"{os.environ['SERVER']}/services/events/clusters/{os.environ['WORKSPACE']}"
CONTEXT = ssl.create_default_context(cafile=os.environ["CA_FILE"])
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}


def post(path, body):
    request = urllib.request.Request(EVENTS + path, json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, context=CONTEXT) as answer:
        return json.load(answer)


async def read(consumer):
    while True:
        try:
            messages = await consumer.fetch(100, timeout=20)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            headers = message.headers
            print(headers["Atoll-Operation"], headers.get("ce-subject"), headers["Atoll-Revision"], flush=True)
            await message.ack()


async def follow():
    found = post("/subscriptions", {"name": "copy-python", "resources": ["configmaps"]})
    connection = await nats.connect(
        found["servers"],
        token=post("/token", {})["token"],
        inbox_prefix=found["inboxPrefix"],
        tls=ssl.create_default_context(cadata=found["ca"]) if found["ca"] else None,
        allow_reconnect=False,
    )
    try:
        control = await connection.subscribe(found["control"])
        context = connection.jetstream(prefix=found["apiPrefix"])
        async with asyncio.TaskGroup() as readers:
            for each in found["streams"]:
                readers.create_task(read(await context.pull_subscribe_bind(found["consumer"], stream=each["stream"])))
            raise nats.errors.Error((await control.next_msg(timeout=None)).data.decode())
    finally:
        await connection.close()


async def main():
    while True:
        try:
            await follow()
        except* (OSError, nats.errors.Error) as errors:
            print("again:", *errors.exceptions, file=sys.stderr)
        await asyncio.sleep(1)


asyncio.run(main())
