"""Prints the changes of ConfigMaps in a workspace, with a plain NATS client."""

import asyncio
import json
import os
import ssl
import urllib.request

import nats

EVENTS = f"{os.environ['SERVER']}/services/events/clusters/{os.environ['WORKSPACE']}"
CONTEXT = ssl.create_default_context(cafile=os.environ["CA_FILE"])
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}


def post(path, body):
    request = urllib.request.Request(EVENTS + path, json.dumps(body).encode(), HEADERS)
    with urllib.request.urlopen(request, context=CONTEXT) as answer:
        return json.load(answer)


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
        stream = connection.jetstream(prefix=found["apiPrefix"])
        consumer = await stream.pull_subscribe_bind(found["consumer"], stream=found["streams"][0]["stream"])
        while connection.is_connected:
            try:
                messages = await consumer.fetch(100, timeout=20)
            except nats.errors.TimeoutError:
                continue
            for message in messages:
                headers = message.headers
                print(headers["Atoll-Operation"], headers.get("ce-subject"), headers["Atoll-Revision"], flush=True)
                await message.ack()
    finally:
        await connection.close()


async def main():
    while True:
        try:
            await follow()
        except (OSError, nats.errors.Error) as error:
            print("again:", error)
        await asyncio.sleep(1)


asyncio.run(main())
