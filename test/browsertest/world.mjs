// Applications of a sidecar: they publish, and consume by pulling.
import assert from 'node:assert/strict';

// publish publishes events {payload, opts}; the results are in their order.
export async function publish(sidecar, topic, events, headers = {}) {
  const response = await fetch(`${sidecar}/v1/topics/${topic}/events`, {
    method: 'POST', headers: {'Content-Type': 'application/x-ndjson', ...headers}, body: events.map(e => JSON.stringify(e)).join('\n'),
  });
  const text = await response.text();
  assert.ok(response.ok, `${response.status} ${text}`);
  return JSON.parse(text).results;
}

// consumer pulls the events of a group, until stop. handle says what to do with one: {ack: true}, {dead: reason}, {wait: ms} before
// it is acked, or {} to keep it.
export function consumer(sidecar, topic, group, handle, headers = {}) {
  const stop = new AbortController();
  const self = {handle, stop: () => stop.abort()};
  const post = async (verb, body) => {
    const response = await fetch(`${sidecar}/v1/topics/${topic}/groups/${encodeURIComponent(group)}/${verb}`, {
      method: 'POST', headers: {'Content-Type': 'application/json', ...headers}, body: JSON.stringify(body), signal: stop.signal,
    });
    return response.json();
  };
  const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
  (async () => {
    while (!stop.signal.aborted) {
      try {
        const {events = []} = await post('pull', {max: 10, wait_ms: 500, opts: {from: 'earliest'}});
        for (const {event, ctx} of events) {
          const does = self.handle(event);
          if (does.wait) await pause(does.wait);
          if (does.ack || does.wait) await post('ack', {leases: [ctx.lease]});
          if (does.dead) await post('nack', {leases: [ctx.lease], reason: does.dead, dead_letter: true});
        }
        if (events.length === 0) await pause(50);
      } catch (error) {
        if (stop.signal.aborted) return;
        await pause(200); // the sidecar's store is away, perhaps
      }
    }
  })();
  return self;
}
