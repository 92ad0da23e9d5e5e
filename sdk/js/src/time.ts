/** Waits for `ms`, or until the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal?.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal?.removeEventListener("abort", done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal?.addEventListener("abort", done)
  })
}

/** Calls f once what runs now, and what is ready to go on, has ended. */
export function soon(f: () => void): void {
  const {setImmediate} = globalThis as {setImmediate?: (f: () => void) => void} // browsers have none
  if (setImmediate) setImmediate(f)
  else setTimeout(f)
}

/** The promise's outcome, or the signal's reason where that aborts first. */
export function orAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal.reason)
    if (signal.aborted) aborted()
    signal.addEventListener("abort", aborted, {once: true})
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted))
  })
}

/** A wait before the next try that doubles, from `first` to `most`. Half of it is random, so that clients do not retry together. */
export class Backoff {
  readonly #first: number
  readonly #most: number
  /** The longest that the last wait can have been. */
  reached = 0

  constructor(first: number, most: number) {
    this.#first = first
    this.#most = most
  }

  next(): number {
    this.reached = Math.min(Math.max(2 * this.reached, this.#first), this.#most)
    return this.reached * (0.5 + Math.random() / 2)
  }
}

/** A promise with its ends. */
export interface Deferred<T> {
  promise: Promise<T>
  resolve(value: T): void
  reject(err: unknown): void
}

export function deferred<T>(): Deferred<T> {
  let ends!: Omit<Deferred<T>, "promise">
  const promise = new Promise<T>((resolve, reject) => ends = {resolve, reject})
  promise.catch(() => {}) // it is also kept where nobody waits
  return {promise, ...ends}
}
