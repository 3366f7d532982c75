// Prints the changes of ConfigMaps in a workspace, with a plain NATS client.
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const { SERVER, WORKSPACE, TOKEN, CA_FILE } = process.env;

function post(path, body) {
  const url = `${SERVER}/services/events/clusters/${WORKSPACE}${path}`;
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", ca: readFileSync(CA_FILE), headers }, async (answer) => {
      let text = "";
      for await (const piece of answer) text += piece;
      answer.statusCode < 300 ? resolve(JSON.parse(text)) : reject(new Error(text));
    });
    sent.on("error", reject).end(JSON.stringify(body));
  });
}

async function read(consumer) {
  for await (const message of await consumer.consume({ max_messages: 100 })) {
    const headers = message.headers;
    console.log(headers.get("Atoll-Operation"), headers.get("ce-subject"), headers.get("Atoll-Revision"));
    message.ack();
  }
}

async function changed(control) {
  for await (const message of control) throw new Error(message.string());
}

async function follow() {
  const found = await post("/subscriptions", { name: "copy-javascript", resources: ["configmaps"] });
  const { token } = await post("/token", {});
  const tls = found.ca ? { ca: found.ca } : undefined;
  const options = { servers: found.servers, token, inboxPrefix: found.inboxPrefix, tls, reconnect: false };
  const connection = await connect(options);
  try {
    const { consumers } = jetstream(connection, { apiPrefix: found.apiPrefix });
    const ends = [connection.closed(), changed(connection.subscribe(found.control))];
    for (const { stream } of found.streams) ends.push(consumers.get(stream, found.consumer).then(read));
    await Promise.race(ends);
  } finally {
    await connection.close();
  }
}

for (;;) {
  await follow().catch((error) => console.error("again:", error.message));
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
