// Data that takes several requests, which the watch does not have: read now and then, and not while the page is hidden.
import {api} from './api.js';
import {useEffect, useRef, useState} from './vendor/hooks.mjs';

const share = 10; // what takes long is read less often: for a tenth of the time at most

// usePolled calls read(signal) now and every so many ms; another key begins anew, and '' reads nothing. After a failure it keeps
// its data.
export function usePolled(key, read, every = 10_000) {
  const [state, setState] = useState({});
  const again = useRef(() => {});
  const last = useRef(read);
  last.current = read;
  useEffect(() => {
    if (!key) return undefined;
    const stop = new AbortController();
    let timer, busy = false;
    async function ask() {
      if (busy || document.hidden) return;
      busy = true;
      clearTimeout(timer);
      const begin = Date.now();
      try {
        const data = await last.current(stop.signal);
        if (!stop.signal.aborted) setState({key, data, at: Date.now()});
      } catch (error) {
        if (!stop.signal.aborted) setState(s => (s.key === key ? {...s, error} : {key, error}));
      } finally {
        busy = false;
        if (!stop.signal.aborted) timer = setTimeout(ask, Math.max(every, (share - 1) * (Date.now() - begin)));
      }
    }
    again.current = ask;
    document.addEventListener('visibilitychange', ask);
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', ask);
    };
  }, [key, every]);
  const mine = state.key === key ? state : {};
  return {...mine, stale: Boolean(mine.error && mine.data), refresh: () => again.current()};
}

// inTurns maps a list by an async function, a few at a time.
export async function inTurns(list, f, most = 4) {
  const results = [];
  const rest = list.entries();
  const worker = async () => { for (const [i, one] of rest) results[i] = await f(one); };
  await Promise.all(Array.from({length: most}, worker));
  return results;
}
