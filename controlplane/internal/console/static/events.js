// The events of a topic: newest first or from a place, by key, tag, header and text, and live.
import {Choice, denied, Empty, ErrorNote, Filter, Guarded, html, Page, TopicTabs, useEffect, useRef, useState, Waiting} from './ui.js';
import {api} from './api.js';
import {address, setQuery} from './router.js';
import {bytes, count, plural, precise} from './format.js';
import {quote} from './copy.js';
import {exportPath, filtered, follow, matches, read} from './eventlog.js';
import {Payload, preview} from './payload.js';
import {Publish} from './publish.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

const mostRows = 1000; // of the page; the first ones go, or live the last ones
const mostDownload = 64 << 20; // bytes

export const eventLink = (event, store) => address(['topics', event.topic, 'events', event.id], {store});

export function Events({topic, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const no = denied(me, 'reader');
  const path = store && exportPath(store, topic, query);
  const [publishing, setPublishing] = useState(false);
  const cli = store && `sluice events ${quote(topic)} --store ${quote(store)}` + ['key', 'tag', 'header'].map(f => (query[f] ? ` --${f} ${quote(query[f])}` : '')).join('');
  const mayNot = denied(me, 'operator');
  return html`
    <${Page} title=${topic} code crumbs=${[['Topics', address(['topics'])]]} poll=${known} copy=${path && !no && {path, cli, me}} actions=${store && html`
      <${Guarded} denied=${mayNot} onClick=${() => setPublishing(true)}>Publish a test event…<//>
      <${Download} path=${path} topic=${topic} store=${store} query=${query} denied=${no} />`}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Events" />
      ${no ? html`<${Empty}><p>${no}</p><p>Who may read events is set by the roles of the control plane's <code>--auth-config</code>.</p><//>`
        : store === undefined ? html`<${Waiting} poll=${known} />`
        : store === '' ? html`<${Empty}>No sidecar is connected that could read events: start one.<//>`
        : html`
          <${Toolbar} query=${query} stores=${stores} store=${store} />
          ${query.live ? html`<${Live} key=${store} topic=${topic} store=${store} query=${query} />`
            : html`<${Stored} key=${JSON.stringify([store, query])} topic=${topic} store=${store} query=${query} />`}`}
      ${publishing && html`<${Publish} topic=${topic} store=${store} me=${me} onClose=${() => setPublishing(false)} />`}
    <//>`;
}

const places = [['', 'newest first'], ['earliest', 'oldest first'], ['time', 'from a time'], ['id', 'from an id'], ['position', 'from a position']];
const hints = {time: '2026-01-31 14:00', id: 'an event’s id', position: 'partition:seq, such as 3:1042'};

function Toolbar({query, stores, store}) {
  return html`
    <div class="toolbar">
      <${StoreChoice} stores=${stores} query=${{store}} />
      ${!query.live && html`<${Choice} name="from" query=${query} label="Show" options=${places} />
        ${hints[query.from] && html`<${Filter} name="at" query=${query} label=${hints[query.from]} first=${false} />`}`}
      <label class="choice"><input type="checkbox" checked=${Boolean(query.live)} onChange=${e => setQuery({live: e.target.checked ? '1' : ''}, true)} /> Live</label>
    </div>
    <div class="toolbar filters">
      <${Filter} name="key" query=${query} label="Key" />
      <${Filter} name="tag" query=${query} label="Tag" first=${false} />
      <${Filter} name="header" query=${query} label="Header: NAME=VALUE" first=${false} />
      <${Filter} name="text" query=${query} label="Text in the payload" first=${false} />
      ${query.cause && html`<span>caused by <code>${query.cause}</code> <button type="button" class="quiet" onClick=${() => setQuery({cause: ''})}>all</button></span>`}
    </div>`;
}

// Stored shows what is in the log, page after page.
function Stored({topic, store, query}) {
  const [state, setState] = useState({rows: [], looked: 0, busy: true});
  const stop = useRef();
  const incomplete = Boolean(hints[query.from]) && !query.at;
  async function load(after) {
    stop.current = new AbortController();
    const {signal} = stop.current;
    setState(s => ({...s, busy: true, error: null}));
    const found = [];
    try {
      const got = await read(store, topic, query, after, {signal, onFound: e => found.push(e)});
      setState(s => ({rows: [...s.rows, ...found].slice(-mostRows), looked: s.looked + got.looked, last: got.last, ended: got.ended, busy: false}));
    } catch (error) {
      if (!signal.aborted) setState(s => ({...s, rows: [...s.rows, ...found], error, busy: false}));
    }
  }
  useEffect(() => {
    if (!incomplete) load();
    return () => stop.current?.abort();
  }, []);
  if (incomplete) return html`<${Empty}>Where from? Enter ${hints[query.from]}.<//>`;
  const {rows, looked, last, ended, busy, error} = state;
  const searched = filtered(query) && looked > 0 && `${plural(looked, 'event')} searched${last && !ended ? `, ${query.from ? 'up' : 'back'} to ${precise(last.ts)}` : ''}. `;
  return html`
    ${rows.length > 0 && html`<${List} rows=${rows} store=${store} />`}
    ${rows.length === 0 && !busy && !error && html`<${Empty}>${ended && !filtered(query) && !query.key
      ? html`<p>No events${query.from ? ' from there on' : ''}.</p><p>Publish a test event above, or wait for new ones with Live.</p>` : html`<p>No event matches${ended ? '' : ' so far'}.</p>`}<//>`}
    <${ErrorNote} error=${error} />
    <div class="pages" role="status">
      ${busy ? html`<span class="muted">Reading…</span>` : html`<span class="muted">${searched}${looked > 0 && ended && 'That is all.'}</span>`}
      ${!busy && !ended && html`<button type="button" onClick=${() => load(last)}>${error ? 'Try again' : searched ? 'Go on' : 'Show more'}</button>`}
    </div>`;
}

// Live shows events as they come. While it is paused, they wait.
function Live({topic, store, query}) {
  const [rows, setRows] = useState([]);
  const [paused, setPaused] = useState(false);
  const [waiting, setWaiting] = useState(0);
  const [error, setError] = useState(null);
  const come = useRef([]); // newest first, not shown yet
  const held = useRef(false);
  const wanted = useRef(query);
  wanted.current = query;
  held.current = paused;
  const show = () => {
    const latest = come.current;
    come.current = [];
    setWaiting(0);
    if (latest.length > 0) setRows(r => [...latest, ...r].slice(0, mostRows));
  };
  useEffect(() => {
    const stop = new AbortController();
    const onFound = event => { come.current = [event, ...come.current].slice(0, mostRows); };
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          await follow(store, topic, {}, {signal: stop.signal, onFound: e => matches(e, wanted.current) && onFound(e)});
          setError(null);
        } catch (err) {
          if (stop.signal.aborted) return;
          setError(err);
        }
        await new Promise(resolve => setTimeout(resolve, 2000));
      }
    };
    run();
    const draw = setInterval(() => (held.current ? setWaiting(come.current.length) : show()), 250);
    return () => {
      stop.abort();
      clearInterval(draw);
    };
  }, []);
  const pause = () => {
    setPaused(!paused);
    if (paused) show();
  };
  return html`
    <div class="toolbar"><button type="button" onClick=${pause}>${paused ? 'Go on' : 'Pause'}</button>
      <span class="muted" role="status">${paused ? `Paused; ${plural(waiting, 'event')} ${waiting === mostRows ? 'or more ' : ''}since.` : `Waiting for events since this page was opened; the latest ${count(mostRows)} stay.`}</span></div>
    <${ErrorNote} error=${error} />
    ${rows.length > 0 ? html`<${List} rows=${rows.filter(e => matches(e, query))} store=${store} />` : html`<${Empty}>No event has come yet.<//>`}`;
}

// List shows events, one of them with all that it has.
function List({rows, store}) {
  const [open, setOpen] = useState(null);
  const columns = [
    {title: 'Time', className: 'time', cell: e => html`<button type="button" class="disclose" aria-expanded=${open === e.id ? 'true' : 'false'}
      onClick=${() => setOpen(open === e.id ? null : e.id)}><time datetime=${new Date(e.ts).toISOString()}>${precise(e.ts)}</time></button>`},
    {title: 'Key', className: 'code clip', cell: e => e.key ?? html`<span class="muted">–</span>`},
    {title: 'Place', number: true, className: 'code', cell: e => (e.seq === undefined ? 'spool' : `${e.partition}:${e.seq}`)},
    {title: 'Payload', className: 'code preview', cell: e => preview(e)},
  ];
  return html`<${Table} name="events" columns=${columns} rows=${rows} id=${e => e.id} details=${e => e.id === open && html`<${Details} event=${e} store=${store} />`} />`;
}

// Details is all that an event has.
export function Details({event: e, store, whole}) {
  const headers = Object.entries(e.headers ?? {});
  return html`
    <div class="event">
      <dl class="facts">
        <div><dt>Id</dt><dd class="code">${whole ? e.id : html`<a href=${eventLink(e, store)}>${e.id}</a>`}</dd></div>
        <div><dt>Time</dt><dd>${precise(e.ts)} <small>${e.ts}</small></dd></div>
        ${e.seq !== undefined && html`<div><dt>Partition and seq</dt><dd class="code">${e.partition}:${e.seq}</dd></div>`}
        ${e.key && html`<div><dt>Key</dt><dd class="code"><a href=${address(['topics', e.topic, 'events'], {store, key: e.key})}>${e.key}</a></dd></div>`}
        ${e.tags?.length > 0 && html`<div><dt>Tags</dt><dd>${e.tags.map(t => html`<span key=${t} class="badge">${t}</span> `)}</dd></div>`}
        ${e.sid && html`<div><dt>Session</dt><dd class="code">${e.sid}</dd></div>`}
        ${e.ttl_ms && html`<div><dt>Expires after</dt><dd>${count(e.ttl_ms)} ms</dd></div>`}
        ${!whole && e.caused_by?.length > 0 && html`<div><dt>Caused by</dt><dd class="code">${e.caused_by.join(', ')}</dd></div>`}
      </dl>
      ${headers.length > 0 && html`
        <table class="headers"><thead><tr><th scope="col">Header</th><th scope="col">Value</th></tr></thead>
          <tbody>${headers.map(([name, value]) => html`<tr key=${name}><th scope="row" class="code">${name}</th><td class="code">${value}</td></tr>`)}</tbody></table>`}
      <${Payload} event=${e} />
    </div>`;
}

// Download saves what the address selects, as NDJSON.
function Download({path, topic, store, query, denied: no}) {
  const [state, setState] = useState({});
  async function save() {
    const parts = [];
    let size = 0;
    setState({busy: true});
    try {
      await api.ndjson(path, {onObject: (event, line) => {
        if (!matches(event, query)) return true;
        parts.push(line + '\n');
        size += line.length + 1;
        setState({busy: true, size});
        return size < mostDownload;
      }});
    } catch (error) {
      setState({error});
      return;
    }
    const url = URL.createObjectURL(new Blob(parts, {type: 'application/x-ndjson'}));
    Object.assign(document.createElement('a'), {href: url, download: `${topic}.ndjson`}).click();
    URL.revokeObjectURL(url);
    setState({error: size < mostDownload ? null : {message: `The file has the first ${bytes(size)}. For all: sluice export ${quote(topic)} --store ${quote(store)}`}});
  }
  return html`
    <${Guarded} denied=${no} disabled=${state.busy} onClick=${save}>${state.busy ? `${bytes(state.size ?? 0)}…` : 'Download'}<//>
    <${ErrorNote} error=${state.error} />`;
}
