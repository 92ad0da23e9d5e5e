import {refused} from "./errors.js"
import type {EventRecord, Positions, SidecarOptions} from "./types.js"

/** For how long a subscription with endOnGap may be away: well below the day for which a compacted topic keeps deletions of keys. */
export const longestAwayMs = 12 * 3600_000

/** By how much the ts of an event may be lower than an earlier one's without the event being missed after a reconnect. */
const slackMs = 60_000

/** The position of a subscription without a group, which no sidecar keeps. */
export class Position {
  #joined?: number
  #first?: number // ts of the first event
  #last = 0 // the highest ts, but not beyond the time of its delivery
  #latest = 0 // the highest ts
  #seen: Positions = {} // the highest seq by partition
  /** Where to go on: the positions that the sidecar gave at the start, moved on by the events that came. */
  #places?: Positions
  #lost?: number

  /** Notes where the subscription has started. */
  started(positions: Positions | undefined): void {
    this.#lost = undefined
    if (this.#places || !positions) return
    this.#places = {}
    for (const [partition, seq] of Object.entries(positions)) this.#places[partition] = Math.max(seq, this.#seen[partition] ?? 0)
  }

  /** Notes that there is no connection. */
  left(): void {
    this.#lost ??= Date.now()
  }

  awayMs(): number {
    return this.#lost === undefined ? 0 : Date.now() - this.#lost
  }

  /** Whether the positions to go on behind were refused: retention has passed them, or the log is another one. A time comes next. */
  misplaced(err: unknown): boolean {
    if (!this.#places || !/^(out_of_range|bad_request)$/.test(refused(err)?.code ?? "")) return false
    this.#places = undefined
    return true
  }

  /**
   * Notes an event, and reports whether it is new. One whose seq is not above its partition's highest, but whose ts is above all
   * earlier ones, is new, too: the log is another one, whose seqs started over.
   */
  pass({partition, seq, ts}: EventRecord): boolean {
    if (seq <= (this.#seen[partition] ?? 0)) {
      if (ts <= this.#latest) return false
      this.#seen = {}
    }
    this.#seen[partition] = seq
    if (this.#places) this.#places[partition] = seq
    this.#first ??= ts
    this.#latest = Math.max(this.#latest, ts)
    this.#last = Math.max(this.#last, Math.min(ts, Date.now()))
    return true
  }

  /**
   * Where to subscribe: at first as asked, then behind the positions, or, where these are not known, a while before the last event.
   * pass drops what comes twice because of that.
   */
  from(asked: SidecarOptions): SidecarOptions {
    const {from = "latest", ts: askedTs = 0, afterId, positions, ...others} = asked
    if (this.#joined === undefined) {
      this.#joined = Date.now()
      return asked
    }
    if (this.#places) return {...others, from: "positions", positions: {...this.#places}}
    if (this.#first === undefined && from !== "latest") return asked
    const earliest = {latest: this.#joined, ts: askedTs, afterId: this.#first ?? 0, earliest: 0, positions: 0}[from]
    return {...others, from: "ts", ts: Math.max(this.#last - slackMs, earliest, 0)}
  }
}
