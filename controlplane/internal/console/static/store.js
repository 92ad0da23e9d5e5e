// The store whose events a page shows: that of the address, else the first one. And what the stores hold of topics.
import {Choice, html, useEffect, useState} from './ui.js';
import {api, storePath} from './api.js';
import {useLive} from './live.js';

// useStore returns the store's id, undefined until it is known and '' if there is none; live is why.
export function useStore(query) {
  const live = useLive('/v1/stores');
  const stores = live.data?.stores;
  return {store: query.store ?? (stores && (stores[0]?.store ?? '')), stores: stores ?? [], live};
}

// StoreChoice is shown where there are several stores.
export const StoreChoice = ({stores, query}) => stores.length > 1 && html`
  <${Choice} name="store" query=${{store: stores[0].store, ...query}} label="Store"
    options=${stores.map(s => [s.store, `${s.kind} of ${s.sidecars.slice(0, 3).join(', ')}${s.sidecars.length > 3 ? '…' : ''}`])} />`;

const mostStores = 8; // whose topics are added up
const sizesEvery = 30_000; // ms

// useStoredTopics knows what the stores hold of topics whose names begin with prefix: a Map of {events, bytes}.
// It reads a page of 1,000 topics of each store. undefined: not read yet.
export function useStoredTopics(prefix) {
  const ids = (useLive('/v1/stores').data?.stores ?? []).slice(0, mostStores).map(s => s.store).join(' ');
  const [found, setFound] = useState();
  useEffect(() => {
    if (!ids || prefix === undefined) return undefined;
    const stop = new AbortController();
    const read = async () => {
      if (document.hidden) return;
      const query = new URLSearchParams({limit: 1000, ...(prefix && {prefix})});
      const answers = await Promise.allSettled(ids.split(' ').map(store =>
        api.get(`${storePath(store, 'topics')}?${query}`, {signal: stop.signal})));
      if (!stop.signal.aborted) setFound(sum(answers.filter(a => a.status === 'fulfilled').map(a => a.value)));
    };
    read();
    const timer = setInterval(read, sizesEvery);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [ids, prefix]);
  return found;
}

function sum(answers) {
  const found = new Map();
  for (const t of answers.flatMap(a => a.topics)) {
    const {events, bytes} = found.get(t.topic) ?? {events: 0, bytes: 0};
    found.set(t.topic, {events: events + t.events, bytes: bytes + t.bytes});
  }
  return found;
}
