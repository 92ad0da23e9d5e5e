import type {Item} from "./item.js"

interface Change {
  assigned: boolean
  partitions: number[]
}

interface Hooks {
  onAssigned?(partitions: number[]): unknown
  onRevoked?(partitions: number[]): unknown
}

/** Which partitions are the subscription's own. The hooks are called one after the other, in the order of what the sidecar said. */
export class Division {
  readonly #hooks: Hooks
  readonly #open: (items: Item[]) => void
  readonly #failed: (err: unknown) => void
  readonly #owned = new Set<number>()
  readonly #opened = new Set<number>() // onAssigned has returned
  readonly #shut = new Map<number, Item[]>() // events that wait for that
  readonly #running = new Map<number, Set<Promise<void>>>() // handlers
  readonly #changes: Change[] = [] // of which the hooks have not returned
  #telling: Promise<void> = Promise.resolve()

  /** open gets the events of partitions whose onAssigned has returned. */
  constructor(hooks: Hooks, open: (items: Item[]) => void, failed: (err: unknown) => void) {
    this.#hooks = hooks
    this.#open = open
    this.#failed = failed
  }

  /** Whether somebody asks for partitions. */
  get asked(): boolean {
    return Boolean(this.#hooks.onAssigned ?? this.#hooks.onRevoked)
  }

  /** Keeps an event whose partition is not open yet. */
  shuts(item: Item): boolean {
    const {partition} = item.event
    if (!this.asked || this.#opened.has(partition)) return false
    this.#shut.set(partition, [...this.#shut.get(partition) ?? [], item])
    return true
  }

  /** Counts a handler until it returns. */
  running(partition: number, handler: Promise<void>): void {
    const of = this.#running.get(partition) ?? new Set()
    this.#running.set(partition, of.add(handler))
    void handler.finally(() => of.delete(handler) && of.size === 0 && this.#running.delete(partition))
  }

  assign(partitions: number[]): void {
    const won = partitions.filter(p => !this.#owned.has(p))
    for (const p of won) this.#owned.add(p)
    this.#tell({assigned: true, partitions: won})
  }

  /** Takes partitions away: which were lost, and their events that no handler had. */
  revoke(partitions: number[]): {lost: number[], items: Item[]} {
    const lost = partitions.filter(p => this.#owned.delete(p))
    for (const p of lost) this.#opened.delete(p)
    const items = lost.flatMap(p => this.#shut.get(p) ?? [])
    for (const p of lost) this.#shut.delete(p)
    this.#tell({assigned: false, partitions: lost})
    return {lost, items}
  }

  revokeAll(): {lost: number[], items: Item[]} {
    const {lost, items} = this.revoke([...this.#owned].sort((a, b) => a - b))
    items.push(...[...this.#shut.values()].flat()) // of partitions that nobody announced
    this.#shut.clear()
    return {lost, items}
  }

  /** Resolves once the hooks have returned. */
  told(): Promise<void> {
    return this.#telling
  }

  #tell(change: Change): void {
    if (change.partitions.length === 0) return
    this.#changes.push(change)
    this.#telling = this.#telling.then(() => this.#call(change))
  }

  async #call({assigned, partitions}: Change): Promise<void> {
    if (!assigned) await Promise.all(partitions.flatMap(p => [...this.#running.get(p) ?? []]))
    const failed = await this.#hook(assigned, [...partitions])
    this.#changes.shift()
    if (!assigned || failed) return
    const overtaken = new Set(this.#changes.flatMap(change => change.partitions))
    for (const p of partitions.filter(p => this.#owned.has(p) && !overtaken.has(p))) {
      this.#opened.add(p)
      const items = this.#shut.get(p) ?? []
      this.#shut.delete(p)
      this.#open(items)
    }
  }

  async #hook(assigned: boolean, partitions: number[]): Promise<boolean> {
    try {
      await (assigned ? this.#hooks.onAssigned?.(partitions) : this.#hooks.onRevoked?.(partitions))
      return false
    } catch (err) {
      this.#failed(err)
      return true
    }
  }
}
