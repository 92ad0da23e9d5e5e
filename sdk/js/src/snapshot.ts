import {OutOfRangeError, type EventBus, type EventRecord, type Positions, type Subscription} from "@sluice-bus/sluice"

/** A state, and the positions of the events that are in it. */
export interface Snapshot<S> {
  state: S
  positions: Positions
  /** When it was made, in milliseconds since the epoch. */
  at: number
}

/** Keeps the last snapshot of one consumer. One process at a time saves. */
export interface SnapshotStore<S> {
  /** When it resolves, load returns this snapshot, whole. */
  save(snapshot: Snapshot<S>): Promise<void>
  load(): Promise<Snapshot<S> | undefined>
}

export interface SnapshotOptions<S, T> {
  /** The state before the first event. */
  initial(): S
  /** The state after an event. Calls come one after the other, those of a partition by seq. An error ends the consumer. */
  apply(state: S, event: EventRecord<T>): S | Promise<S>
  /** The time between two snapshots (30 000). */
  everyMs?: number
  signal?: AbortSignal
}

/**
 * Follows a topic with a state, from the last snapshot on, or from the earliest event where there is none. State and positions are
 * saved together, so that the state has each event once, whenever the process is killed. A snapshot that is older than what the
 * topic keeps is refused with an OutOfRangeError.
 */
export async function startFrom<S, T = unknown>(
  bus: EventBus, topic: string, store: SnapshotStore<S>, options: SnapshotOptions<S, T>,
): Promise<SnapshotConsumer<S, T>> {
  const consumer = new SnapshotConsumer<S, T>(store, await store.load(), options)
  await consumer.start(bus, topic)
  return consumer
}

/** A state that follows a topic; see startFrom. */
export class SnapshotConsumer<S, T = unknown> implements AsyncDisposable {
  state: S
  readonly #store: SnapshotStore<S>
  readonly #options: SnapshotOptions<S, T>
  readonly #positions: Positions
  readonly #at?: number
  #subscription!: Subscription
  #changed = false
  #error?: Error
  #saving: Promise<void> = Promise.resolve()

  constructor(store: SnapshotStore<S>, last: Snapshot<S> | undefined, options: SnapshotOptions<S, T>) {
    this.#store = store
    this.#options = options
    this.state = last ? last.state : options.initial()
    this.#positions = {...last?.positions}
    if (last) this.#at = last.at
  }

  async start(bus: EventBus, topic: string): Promise<void> {
    const {signal, everyMs = 30_000} = this.#options
    const from = this.#at === undefined ? {from: "earliest" as const} : {from: "positions" as const, positions: {...this.#positions}}
    const given = signal ? {signal} : {}
    try {
      this.#subscription = await bus.subscribe<T>(topic, {...from, ...given, endOnGap: true}, event => this.#apply(event))
    } catch (err) {
      if (!(err instanceof OutOfRangeError) || this.#at === undefined) throw err
      const made = new Date(this.#at).toISOString()
      throw new OutOfRangeError("out_of_range", `the snapshot of ${made} is older than what the topic keeps: ${err.message}`, err.details)
    }
    const failed = (err: unknown) => console.error(`sluice: a snapshot of ${topic} was not saved:`, err)
    const timer = setInterval(() => void this.save().catch(failed), everyMs)
    void this.#subscription.closed.then(() => clearInterval(timer))
  }

  async #apply(event: EventRecord<T>): Promise<void> {
    if (this.#error) return
    try {
      this.state = await this.#options.apply(this.state, event)
    } catch (err) {
      this.#error = err instanceof Error ? err : new Error(String(err))
      void this.#subscription.stop()
      return
    }
    this.#positions[event.partition] = event.seq
    this.#changed = true
  }

  /** Why it has ended; undefined while it follows the topic. */
  get error(): Error | undefined {
    return this.#error ?? this.#subscription.error
  }

  /** Saves a snapshot now, unless nothing has come since the last one, or apply has failed. */
  save(): Promise<void> {
    return this.#saving = this.#saving.catch(() => {}).then(async () => {
      if (!this.#changed || this.#error) return
      const snapshot = structuredClone({state: this.state, positions: this.#positions, at: Date.now()})
      this.#changed = false
      try {
        await this.#store.save(snapshot)
      } catch (err) {
        this.#changed = true
        throw err
      }
    })
  }

  /** Ends it, and saves a snapshot. */
  async close(): Promise<void> {
    await this.#subscription.stop()
    await this.save()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
