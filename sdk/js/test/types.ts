// The types as applications meet them: this file compiles.
import {EventBus, type EventRecord, type Receipt} from "@sluice-bus/sluice"
import {MongoDedupe, MongoPartitions, MongoSnapshots, Outbox} from "@sluice-bus/sluice/mongo"
import {startFrom, subscribePartitioned} from "@sluice-bus/sluice/state"
import type {MongoClient} from "mongodb"
import WebSocket from "ws"

export async function ofMongoDB(client: MongoClient, bus: EventBus) {
  const db = client.db()
  await client.withSession(session => new Outbox(db).insert(session, {topic: "orders", payload: 1}))
  await startFrom<number, string>(bus, "orders", new MongoSnapshots(db, "count"), {initial: () => 0, apply: (n, {payload}) => n + payload.length})
  await subscribePartitioned(bus, "orders", "g", new MongoPartitions<number>(db, "g"), n => n + 1, {initial: () => 0})
  return new MongoDedupe(db)
}

export async function ofTheBus(): Promise<Receipt> {
  await using bus = new EventBus({WebSocket, token: async () => "t"})
  await bus.subscribe<{n: number}>("orders", {group: "g"}, ({payload}, {attempt}) => payload.n + attempt)
  for await (const event of bus.events<string>("orders")) event satisfies EventRecord<string>
  // @ts-expect-error: the contract's name is maxInflight
  await bus.subscribe("orders", {maxInFlight: 1}, () => {})
  return bus.publish("orders", {n: 1}, {key: "k", signal: AbortSignal.timeout(1)})
}
