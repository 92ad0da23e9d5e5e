// An application of Dapr's SDK: it tells its parent what its handlers are given.
//
//   application.mjs http|grpc APP_PORT SIDECAR_PORT
import { CommunicationProtocolEnum, DaprPubSubStatusEnum as Status, DaprServer, LogLevel } from "@dapr/dapr";

const [name, serverPort, daprPort] = process.argv.slice(2);
const communicationProtocol = name === "grpc" ? CommunicationProtocolEnum.GRPC : CommunicationProtocolEnum.HTTP;
const logger = { level: LogLevel.Error };
const server = new DaprServer({
  serverHost: "127.0.0.1", serverPort, communicationProtocol, logger,
  clientOptions: { daprHost: "127.0.0.1", daprPort, communicationProtocol, logger },
});

// The data says what the handler does: drop, fail always, or retry once; else it succeeds.
const attempts = {};
const handle = (topic) => async (data) => {
  process.send({ topic, data });
  attempts[data] = (attempts[data] ?? 0) + 1;
  if (topic === "dead") return Status.SUCCESS;
  if (data === "drop") return Status.DROP;
  if (data === "fail" || (data === "retry" && attempts[data] === 1)) return Status.RETRY;
  return Status.SUCCESS;
};

await server.pubsub.subscribeWithOptions("pubsub", "orders", { callback: handle("orders"), deadLetterTopic: "dead" });
await server.pubsub.subscribe("pubsub", "dead", handle("dead"));
await server.pubsub.subscribe("pubsub", "routed", handle("routed"), {
  default: "/others", rules: [{ match: `event.type == "big"`, path: "/big" }],
});
if (name === "http") { // the SDK has bulk over HTTP alone
  await server.pubsub.subscribeBulk("pubsub", "bulk", handle("bulk"), { maxMessagesCount: 10, maxAwaitDurationMs: 50 });
}
await server.start();
process.send({ topic: "ready" });
process.once("disconnect", () => process.exit(0));
