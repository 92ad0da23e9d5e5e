import type {Context, EventBus, EventRecord, SubscribeOptions, Subscription} from "@sluice-bus/sluice"

/** The state of one partition as it is stored. */
export interface PartitionState<S> {
  state: S
  /** The last events that are in the state: some of them may come again. */
  applied: string[]
  /** Counts the saves. */
  version: number
}

/** Keeps the states of a group's partitions. */
export interface PartitionStore<S> {
  load(partition: number): Promise<PartitionState<S> | undefined>
  /** Refuses, by throwing, unless the version that is stored is the one before: another consumer has the partition then. */
  save(partition: number, state: PartitionState<S>): Promise<void>
}

export interface PartitionedOptions<S> extends Omit<SubscribeOptions, "group" | "manualAck" | "onAssigned" | "onRevoked"> {
  /** The state of a partition before its first event. */
  initial(partition: number): S
}

/**
 * Subscribes consumers of a group that have partitions of their own, with a state for each. The handler returns the state after an
 * event; the events of a partition come one after the other. A state is saved before its events are acked, and names them, so that
 * it has each event once, whoever is killed when.
 */
export async function subscribePartitioned<S, T = unknown>(
  bus: EventBus, topic: string, group: string, store: PartitionStore<S>,
  handler: (state: S, event: EventRecord<T>, ctx: Context) => S | Promise<S>, {initial, ...options}: PartitionedOptions<S>,
): Promise<Subscription> {
  const partitions = new Map<number, Partition<S, T>>()
  return bus.subscribe<T>(topic, group, (event, ctx) => partitions.get(event.partition)!.take(event, ctx), {
    concurrency: 100, ...options, manualAck: true,
    onAssigned: numbers => Promise.all(numbers.map(async number => {
      const partition = new Partition<S, T>(number, store, handler, initial)
      await partition.load()
      partitions.set(number, partition)
    })),
    onRevoked: numbers => numbers.forEach(number => partitions.delete(number)),
  })
}

interface Taken<T> {
  event: EventRecord<T>
  ctx: Context
  done(): void
  failed(err: unknown): void
}

const mostApplied = 1000 // more than are in flight

/** One partition: applies what has come, saves, acks, and then looks again at what has come. */
class Partition<S, T> {
  #state!: PartitionState<S>
  #queue: Taken<T>[] = []
  #busy = false

  constructor(
    readonly number: number, readonly store: PartitionStore<S>,
    readonly handler: (state: S, event: EventRecord<T>, ctx: Context) => S | Promise<S>, readonly initial: (partition: number) => S,
  ) {}

  async load(): Promise<void> {
    this.#state = await this.store.load(this.number) ?? {state: this.initial(this.number), applied: [], version: 0}
  }

  /** Resolves once the event is in the stored state, and acked. */
  take(event: EventRecord<T>, ctx: Context): Promise<void> {
    return new Promise((done, failed) => {
      this.#queue.push({event, ctx, done, failed})
      if (!this.#busy) void this.#work()
    })
  }

  async #work(): Promise<void> {
    this.#busy = true
    while (this.#queue.length > 0) {
      const taken = this.#queue.splice(0).filter(({ctx, failed}) => !ctx.signal.aborted || failed(ctx.signal.reason))
      const known = new Set(this.#state.applied)
      let state = structuredClone(this.#state.state)
      const good: Taken<T>[] = []
      for (const next of taken) {
        try {
          if (!known.has(next.event.id)) state = await this.handler(state, next.event, next.ctx)
          good.push(next)
        } catch (err) {
          next.failed(err)
        }
      }
      await this.#save(state, good)
    }
    this.#busy = false
  }

  async #save(state: S, good: Taken<T>[]): Promise<void> {
    if (good.length === 0) return
    try {
      const applied = [...new Set([...this.#state.applied, ...good.map(({event}) => event.id)])].slice(-mostApplied)
      const next = {state, applied, version: this.#state.version + 1}
      await this.store.save(this.number, next)
      this.#state = next
    } catch (err) {
      for (const {failed} of good) failed(err)
      return this.load().catch(() => {}) // what is kept in memory is older than what is stored, and is refused again
    }
    await Promise.all(good.map(({ctx, done, failed}) => ctx.ack().then(done, failed)))
  }
}
