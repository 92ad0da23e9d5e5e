/** The parts of OpenTelemetry that are used. */
interface Api {
  context?: {active(): object, with<T>(context: object, f: () => T): T}
  propagation?: {
    inject(context: object, carrier: Headers, setter: {set(carrier: Headers, name: string, value: string): void}): void
    extract(context: object, carrier: Headers, getter: Getter): object
  }
}

interface Getter {
  get(carrier: Headers, name: string): string | undefined
  keys(carrier: Headers): string[]
}

type Headers = Record<string, string>

/**
 * What an application has registered with @opentelemetry/api. Every copy of that package's version 1 keeps it under this symbol, so
 * nothing needs to be imported, which bundlers and browsers could not do where the package is not there.
 */
const api = (): Api => (globalThis as {[key: symbol]: Api | undefined})[Symbol.for("opentelemetry.js.api.1")] ?? {}

/** The headers with those of the active trace, which change none that is there. */
export function traced(headers: Headers | undefined): Headers | undefined {
  const {context, propagation} = api()
  if (!context || !propagation) return headers
  const added: Headers = {}
  propagation.inject(context.active(), added, {set: (carrier, name, value) => carrier[name.toLowerCase()] = value})
  return Object.keys(added).length > 0 ? {...added, ...headers} : headers
}

/** Calls f as part of the trace that the headers name. */
export function tracing<T>(headers: Headers | undefined, f: () => T): T {
  const {context, propagation} = api()
  if (!context || !propagation || !headers) return f()
  const getter = {get: (carrier: Headers, name: string) => carrier[name], keys: (carrier: Headers) => Object.keys(carrier)}
  return context.with(propagation.extract(context.active(), headers, getter), f)
}
