// Addresses: #/topics/orders.created/events?key=a. All that decides what a page shows is in its address, so that
// it can be shared, and Back leads to it.
import {useEffect, useState} from './vendor/hooks.mjs';

// address makes a link of the segments of a path and of what is set in query.
export function address(path, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(set).toString();
  return '#/' + path.map(encodeURIComponent).join('/') + (text && '?' + text);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// current reads the address: the segments of its path, and its query.
function current() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return {path: path.split('/').filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query))};
}

export function useAddress() {
  const [at, setAt] = useState(current());
  useEffect(() => {
    let path = at.path.join('/');
    const changed = () => {
      const now = current();
      if (now.path.join('/') !== path) scrollTo(0, 0);
      path = now.path.join('/');
      setAt(now);
    };
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return at;
}

// setQuery changes parts of the query; '' removes one. With push, Back leads to the query before.
export function setQuery(part, push = false) {
  const {path, query} = current();
  const to = address(path, {...query, ...part});
  if (to === location.hash) return;
  if (push) location.hash = to;
  else {
    history.replaceState(null, '', to);
    dispatchEvent(new HashChangeEvent('hashchange'));
  }
}

// match finds the page of a path: "topics/:topic" has the parameter topic.
export function match(pages, path) {
  for (const page of pages) {
    const pattern = page.path.split('/').filter(Boolean);
    if (pattern.length !== path.length || !pattern.every((p, i) => p.startsWith(':') || p === path[i])) continue;
    const found = pattern.map((p, i) => [p, path[i]]).filter(([p]) => p.startsWith(':'));
    return {page, params: Object.fromEntries(found.map(([p, value]) => [p.slice(1), value]))};
  }
  return {page: pages[0], params: {}};
}
