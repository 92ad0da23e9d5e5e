// Stores orders and the events that tell of them in one transaction each, bills each order once, and keeps the turnover of each
// customer as a state with snapshots. A sidecar with --outbox publishes the events.
import {EventBus, subscribeExactlyOnce} from "@sluice-bus/sluice"
import {MongoDedupe, MongoSnapshots, Outbox} from "@sluice-bus/sluice/mongo"
import {startFrom} from "@sluice-bus/sluice/state"
import {MongoClient} from "mongodb"

declare const process: {env: Record<string, string | undefined>}

interface Order {
  order: number
  customer: string
  total: number
}

const topic = "orders.created"
const mongodb = await MongoClient.connect(process.env.MONGODB_URI!)
const db = mongodb.db()
const outbox = new Outbox(db)
await outbox.prepare()
const bus = new EventBus() // the sidecar that SLUICE_URL names

// place stores an order and inserts its event, or does neither.
async function place(order: Order): Promise<boolean> {
  try {
    await mongodb.withSession(session => session.withTransaction(async () => {
      await db.collection("orders").insertOne({...order}, {session})
      await outbox.insert(session, {topic, key: order.customer, payload: order})
      if (order.order % 5 === 0) throw new Error("the card was declined") // the event is rolled back, too
    }))
    return true
  } catch {
    return false
  }
}

const billed = new Map<number, number>() // order → how often
await subscribeExactlyOnce<Order>(bus, topic, "billing", new MongoDedupe(db), ({payload: {order, customer}}) => {
  billed.set(order, (billed.get(order) ?? 0) + 1)
  console.log(`billing: order ${order} of ${customer}`)
}, {from: "earliest"})

type Turnover = Record<string, number>
const turnover = () => startFrom<Turnover, Order>(bus, topic, new MongoSnapshots<Turnover>(db, "turnover"), {
  initial: () => ({}),
  apply: (state, {payload: {customer, total}}) => ({...state, [customer]: (state[customer] ?? 0) + total}),
})

// stored is how many orders were stored, and what they come to.
const stored = {orders: 0, total: 0}
async function shop(from: number, to: number): Promise<void> {
  const state = await turnover()
  for (let order = from; order <= to; order++) {
    if (!await place({order, customer: `customer-${order % 4}`, total: order})) continue
    stored.orders++
    stored.total += order
  }
  const sum = () => Object.values(state.state).reduce((a, b) => a + b, 0)
  while (sum() < stored.total || billed.size < stored.orders) await new Promise(resolve => setTimeout(resolve, 10))
  console.log(`the turnover is ${sum()}, of ${billed.size} orders`)
  await state.close() // with a snapshot: the next one goes on behind it
}

await shop(1, 10)
await shop(11, 20)
if ([...billed.values()].some(times => times !== 1)) throw new Error("an order was billed twice")
console.log(`${stored.orders} orders are stored and billed, each once; ${20 - stored.orders} were declined, and nobody heard of them`)
await bus.close()
await db.dropDatabase()
await mongodb.close()
