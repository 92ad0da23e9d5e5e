// The store whose events a page shows, and what the stores hold of topics.
import {Choice, html, useEffect, useState} from './ui.js';
import {api, storePath} from './api.js';
import {useLive} from './live.js';

// useStore returns the store's id, undefined until it is known and '' if there is none; live is why. Where there are several
// and the address names none, it is one whose sidecars use the topic.
export function useStore(query, topic) {
  const live = useLive('/v1/stores');
  const stores = live.data?.stores ?? [];
  const search = topic && !query.store && stores.length > 1;
  const using = useLive(search ? `/v1/topics?limit=1&prefix=${encodeURIComponent(topic)}` : null);
  if (query.store || !live.data) return {store: query.store, stores, live};
  if (search && !using.data && !using.error) return {store: undefined, stores, live: using};
  const sidecars = using.data?.topics.find(t => t.topic === topic)?.sidecars ?? [];
  const found = stores.find(s => s.sidecars.some(node => sidecars.includes(node))) ?? stores[0];
  return {store: found?.store ?? '', stores, live};
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
