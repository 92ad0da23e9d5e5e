// An application of Dapr that publishes orders. Nothing in it knows of Sluice.
import { DaprClient } from "@dapr/dapr";

const client = new DaprClient({ daprHost: "127.0.0.1", daprPort: process.env.DAPR_HTTP_PORT });
for (let orderId = 1; orderId <= 10; orderId++) {
  const { error } = await client.pubsub.publish("orderpubsub", "orders", { orderId });
  if (error) throw error;
  console.log(`checkout: published order ${orderId}`);
}
await client.stop();
