import type {EventBus} from "./bus.js"
import {SluiceError} from "./errors.js"
import type {PublishOptions} from "./types.js"

/** An event that was not published, or not known to be: publish it again under its id. */
export interface FailedEvent {
  topic: string
  payload: unknown
  options: PublishOptions
  error: unknown
}

const keptFailures = 1000

/** Events of a BatchPublisher have failed; `failed` has the first 1000 of them, `count` says how many there are. */
export class BatchError extends SluiceError {
  constructor(readonly count: number, readonly failed: readonly FailedEvent[]) {
    super("batch", `${count} events were not published, the first because: ${String(failed[0]?.error)}`, {}, {cause: failed[0]?.error})
  }
}

/**
 * Publishes many events without waiting for each, on a connection of its own:
 *
 *     await using batch = new BatchPublisher(bus)
 *     for (const order of orders) await batch.publish("orders", order, {key: order.customer})
 *     await batch.flush()
 */
export class BatchPublisher implements AsyncDisposable {
  readonly #publisher: ReturnType<EventBus["publisher"]>
  #failed: FailedEvent[] = []
  #count = 0

  constructor(bus: EventBus) {
    this.#publisher = bus.publisher()
  }

  /** Hands over one event. Resolves as soon as there is room for the next one. */
  async publish(topic: string, payload: unknown, options: PublishOptions = {}): Promise<void> {
    const {accepted, done} = this.#publisher.offer(topic, payload, options)
    done.catch((error: unknown) => {
      if (++this.#count <= keptFailures) this.#failed.push({topic, payload, options, error})
    })
    await accepted
  }

  /** Resolves once all that was handed over is durable; rejects with a BatchError where some of it is not, once. */
  async flush(): Promise<void> {
    await this.#publisher.flush()
    const failed = this.#failed, count = this.#count
    this.#failed = []
    this.#count = 0
    if (count > 0) throw new BatchError(count, failed)
  }

  /** Ends it at once: what has no receipt fails. */
  close(): Promise<void> {
    return this.#publisher.close()
  }

  /** Flushes and closes. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.flush()
    } finally {
      await this.close()
    }
  }
}
