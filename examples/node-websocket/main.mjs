// Publishes the steps of some orders and consumes them: in order for each order, although one step fails at first and the
// consumer's connection breaks on the way.
import {Sluice} from "./sluice.mjs"

const url = (process.env.SLUICE_URL ?? "http://127.0.0.1:7070").replace(/^http/, "ws") + "/ws"
const topic = `orders.steps.${Date.now()}` // of this run alone
const orders = 10, steps = 12

const publisher = new Sluice(url), consumer = new Sluice(url)
const reached = new Map() // order → the last step that was handled
let handled = 0, repeated = 0, failed = 0

const all = new Promise(resolve => consumer.subscribe(topic, "shipping", {from: "earliest", maxInflight: 20}, (event, ctx) => {
  const {step} = event.payload, last = reached.get(event.key) ?? 0
  if (step <= last) {
    repeated++ // its ack was lost with the connection
    return
  }
  if (step !== last + 1) {
    console.error(`${event.key}: step ${step} came after step ${last}`)
    process.exit(1)
  }
  if (event.key === "order-3" && step === 5 && ctx.attempt < 3) {
    failed++
    console.log(`${event.key}: step ${step} fails, attempt ${ctx.attempt}: nack, it comes again before step ${step + 1}`)
    throw new Error("the printer is out of paper")
  }
  reached.set(event.key, step)
  if (++handled === orders * steps / 3) {
    console.log(`${handled} steps handled: the consumer's connection breaks`)
    consumer.cut()
  }
  if (handled === orders * steps) resolve()
}))

// All at once, without waiting for answers: events of one key are logged in the order in which they were sent.
const receipts = []
for (let step = 1; step <= steps; step++) {
  for (let order = 1; order <= orders; order++) receipts.push(publisher.publish(topic, {step}, {key: `order-${order}`}))
}
const durable = (await Promise.all(receipts)).filter(receipt => receipt.durability === "store").length
console.log(`${durable} events published and durable`)

await all
publisher.close()
consumer.close()
console.log(`${handled} steps handled, each order's in order; ${failed} failed at first; some came twice where an ack was lost: ${repeated}`)
