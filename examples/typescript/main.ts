// Publishes the steps of some orders and consumes them: in order for each order, although one step fails at first and the
// consumer is replaced on the way.
import {EventBus} from "@sluice-bus/sluice"

interface Step {
  step: number
}

const topic = `orders.steps.${Date.now()}` // of this run alone
const orders = 10, steps = 12

await using bus = new EventBus() // the sidecar that SLUICE_URL names

// All at once, without waiting for receipts: events of one key are logged in the order of the calls.
const receipts = []
for (let step = 1; step <= steps; step++) {
  for (let order = 1; order <= orders; order++) receipts.push(bus.publish(topic, {step}, {key: `order-${order}`}))
}
const durable = (await Promise.all(receipts)).filter(({durability}) => durability === "store").length
console.log(`${durable} events published and durable`)

const reached = new Map<string, number>() // order → the last step that was handled
let handled = 0
const failed = new Set<number>() // attempts: one that fails while its consumer leaves is not counted, and comes again

// consume handles the steps until so many of them are handled, those of four orders at a time.
async function consume(until: number): Promise<void> {
  const enough = new AbortController()
  const options = {group: "shipping", from: "earliest", concurrency: 4, maxAttempts: 5} as const
  const subscription = await bus.subscribe<Step>(topic, options, ({key = "", payload: {step}}, {attempt}) => {
    if (step !== (reached.get(key) ?? 0) + 1) throw new Error(`step ${step} came after step ${reached.get(key)}`)
    if (key === "order-3" && step === 5 && attempt < 3) {
      failed.add(attempt)
      console.log(`${key}: step ${step} fails, attempt ${attempt}: it comes again before step ${step + 1}`)
      throw new Error("the printer is out of paper")
    }
    reached.set(key, step)
    if (++handled >= until) enough.abort()
  })
  await new Promise(resolve => enough.signal.addEventListener("abort", resolve))
  await subscription.drain() // what is delivered is handled and acked
}

await consume(orders * steps / 3)
console.log(`${handled} steps handled: this consumer leaves, and another one goes on`)
await consume(orders * steps)
console.log(`${handled} steps handled, each order's in order; ${failed.size} failed at first`)

let history = 0
for await (const event of bus.replay<Step>(topic, {key: "order-3"})) {
  if (event.payload.step !== ++history) throw new Error(`the history has step ${event.payload.step} at ${history}`)
}
console.log(`the history has the ${history} steps of order-3`)
