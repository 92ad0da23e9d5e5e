import type {Item} from "./item.js"

/** Decides which event is handled next: in the order in which they came, and those of one key one after the other. */
export class Dispatcher {
  /** Those that a handler may take now. */
  ready: Item[] = []
  /** Items that no handler has yet. */
  waiting = 0
  /** Each key of which one event is ready or with a handler, and the events behind that one. */
  readonly #behind = new Map<string, Item[]>()
  /** Items that are ready again soon: their handler has failed, or the sidecar is asked first whether they are still here. */
  readonly #postponed = new Map<Item, ReturnType<typeof setTimeout> | undefined>()
  /** Without a group and with one handler, no event has to wait for another of its key. */
  readonly #plain: boolean

  constructor(plain: boolean) {
    this.#plain = plain
  }

  place(item: Item): void {
    this.waiting++
    const {key} = item.event
    if (key && !this.#plain) {
      const behind = this.#behind.get(key)
      if (behind) return void behind.push(item)
      this.#behind.set(key, [])
    }
    this.ready.push(item)
  }

  next(): Item | undefined {
    const item = this.ready.shift()
    if (item) this.waiting--
    return item
  }

  /** Keeps an item, and its key, until it is resumed. */
  postpone(item: Item, timer?: ReturnType<typeof setTimeout>): void {
    this.#postponed.set(item, timer)
  }

  isPostponed(item: Item): boolean {
    return this.#postponed.has(item)
  }

  /** Makes a postponed item ready again; false where it was dropped meanwhile. */
  resume(item: Item): boolean {
    if (!this.#postponed.delete(item)) return false
    this.ready.unshift(item)
    this.waiting++
    return true
  }

  /** Removes a postponed item, and lets its key go on. */
  cancelPostponed(item: Item): boolean {
    clearTimeout(this.#postponed.get(item))
    if (!this.#postponed.delete(item)) return false
    this.release(item)
    return true
  }

  /** Lets the key of an item go on, once its handler has returned or it was dropped. */
  release({event: {key}}: Item): void {
    if (!key || this.#plain) return
    const next = this.#behind.get(key)?.shift()
    if (next) this.ready.push(next)
    else this.#behind.delete(key)
  }

  /** Removes and returns the items that `which` selects, except those that a handler has. */
  drop(which: (item: Item) => boolean): Item[] {
    const dropped: Item[] = []
    for (const [key, behind] of this.#behind) {
      dropped.push(...behind.filter(which))
      this.#behind.set(key, behind.filter(item => !which(item)))
    }
    const heads = this.ready
    this.ready = heads.filter(item => !which(item))
    for (const item of heads.filter(which)) {
      dropped.push(item)
      this.release(item)
    }
    this.waiting -= dropped.length
    for (const item of [...this.#postponed.keys()].filter(which)) {
      this.cancelPostponed(item)
      dropped.push(item)
    }
    return dropped
  }
}
