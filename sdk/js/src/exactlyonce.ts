import type {EventBus} from "./bus.js"
import type {Subscription} from "./subscription.js"
import type {Context, EventRecord, SubscribeOptions} from "./types.js"

/** Remembers which events a group has handled. */
export interface DedupeStore {
  seen(topic: string, group: string, id: string): Promise<boolean>
  /** Durable once it resolves. The default of ttlMs is 7 days. */
  mark(topic: string, group: string, id: string, ttlMs?: number): Promise<void>
}

export const defaultTtlMs = 7 * 24 * 3600_000

/** A DedupeStore in this process, for tests and for effects that end with it. At the bound it forgets the oldest marks. */
export class MemoryDedupe implements DedupeStore {
  readonly #marks = new Map<string, number>() // until when, the oldest mark first

  constructor(readonly most = 100_000) {}

  async seen(topic: string, group: string, id: string): Promise<boolean> {
    return (this.#marks.get(markKey(topic, group, id)) ?? 0) > Date.now()
  }

  async mark(topic: string, group: string, id: string, ttlMs = defaultTtlMs): Promise<void> {
    const key = markKey(topic, group, id)
    this.#marks.delete(key)
    this.#marks.set(key, Date.now() + ttlMs)
    for (const oldest of this.#marks.keys()) {
      if (this.#marks.size <= this.most) break
      this.#marks.delete(oldest)
    }
  }
}

/** Topics and groups have no `/`, so no two events share a key. */
export function markKey(topic: string, group: string, id: string): string {
  return `${topic}/${group}/${id}`
}

export interface ExactlyOnceOptions extends SubscribeOptions {
  /** For how long an event is remembered as handled (7 days). */
  ttlMs?: number
}

/**
 * Subscribes with a handler that is not called for events that the store has seen. The event is marked when the handler has returned,
 * and acked after that. A process that is killed in between handles it again: where that matters, let the handler's own transaction
 * say what was done.
 */
export function subscribeExactlyOnce<T = unknown>(
  bus: EventBus, topic: string, group: string, store: DedupeStore,
  handler: (event: EventRecord<T>, ctx: Context) => unknown, {ttlMs, ...options}: ExactlyOnceOptions = {},
): Promise<Subscription> {
  return bus.subscribe<T>(topic, group, async (event, ctx) => {
    if (await store.seen(topic, group, event.id)) return
    await handler(event, ctx)
    await store.mark(topic, group, event.id, ttlMs)
  }, {...options, manualAck: false})
}
