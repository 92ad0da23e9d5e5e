// An application of Dapr that handles orders. Nothing in it knows of Sluice. It ends once it has all of them.
import { DaprPubSubStatusEnum, DaprServer } from "@dapr/dapr";

const server = new DaprServer({
  serverHost: "127.0.0.1", serverPort: process.env.APP_PORT,
  clientOptions: { daprHost: "127.0.0.1", daprPort: process.env.DAPR_HTTP_PORT },
});
const handled = new Set();
let failed = false;
await server.pubsub.subscribeWithOptions("orderpubsub", "orders", {
  deadLetterTopic: "orders-dead",
  callback: async ({ orderId }) => {
    if (orderId === 3 && !failed) {
      failed = true;
      console.log("order-processor: order 3 fails, and comes again");
      return DaprPubSubStatusEnum.RETRY;
    }
    if (orderId === 7) {
      console.log("order-processor: order 7 is not for us");
      return DaprPubSubStatusEnum.DROP;
    }
    handled.add(orderId);
    console.log(`order-processor: handled order ${orderId}`);
  },
});
await server.pubsub.subscribe("orderpubsub", "orders-dead", async ({ orderId }) => {
  console.log(`order-processor: order ${orderId} is a dead letter`);
  handled.add(orderId);
});
await server.start();
while (handled.size < 10) await new Promise((resolve) => setTimeout(resolve, 50));
console.log("10 orders: 9 handled, and 1 in the topic for dead letters");
setTimeout(() => process.exit(0), 200); // once the last answer is on its way
