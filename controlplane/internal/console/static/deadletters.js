// Dead letters: where there are any, those of one topic, and what becomes of them.
import {Ago, Choice, denied, Empty, ErrorNote, Filter, Guarded, html, Page, Time, topicLink, TopicTabs, useEffect, useId, useRef, useState, Waiting} from './ui.js';
import {api, storePath} from './api.js';
import {address, setQuery} from './router.js';
import {Confirm} from './change.js';
import {count, plural} from './format.js';
import {groupLink, NoStore} from './groups.js';
import {useLive} from './live.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

const letterColumns = [
  {title: 'Topic', sort: 'topic', className: 'code', cell: d => html`<a href=${topicLink(d.topic)}>${d.topic}</a>`},
  {title: 'Group', className: 'code', cell: d => (d.group ? html`<a href=${groupLink(d.topic, d.group, d.store)}>${d.group}</a>` : html`<span class="muted">of a spool</span>`)},
  {title: 'Dead letters', sort: 'dead_letters', number: true, cell: d => html`<a href=${address(['topics', d.topic, 'dead-letters'], {group: d.group, store: d.store})}>${count(d.dead_letters)}</a>`},
  {title: 'Oldest', cell: d => html`<${Ago} at=${d.oldest_dead_letter} />`},
  {title: 'Newest', cell: d => html`<${Ago} at=${d.newest_dead_letter} />`},
];

// AllDeadLetters are the groups that have some, as the sidecars report them.
export function AllDeadLetters({query, me}) {
  const {prefix = '', cursor = '', sort = '-dead_letters'} = query;
  const path = '/v1/groups?' + new URLSearchParams({dead_letters: 1, sort, ...(prefix && {prefix}), ...(cursor && {cursor})});
  const live = useLive(path, {every: 5000});
  const rows = live.data?.groups;
  return html`
    <${Page} title="Dead letters" poll=${live} copy=${{path, cli: 'sluice fleet groups --dead-letters', me}}>
      <div class="toolbar"><${Filter} label="Topics that begin with" name="prefix" query=${query} />
        <span class="muted" role="status">${rows && plural(rows.length, 'group') + (live.data.next || cursor ? ' on this page' : '')}</span></div>
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}><p>${prefix ? html`None in topics that begin with <code>${prefix}</code>.` : 'No group has given up an event.'}</p><//>`
        : html`<${Table} name="letters" columns=${letterColumns} rows=${rows} id=${d => [d.store, d.topic, d.group].join(' ')} query=${query} sort="-dead_letters" next=${live.data.next} />`}
    <//>`;
}

const page = 100; // letters

const columns = (chosen, choose, topic, store) => [
  {title: 'Event', className: 'code', cell: d => html`<label class="pick"><input type="checkbox" checked=${chosen.has(d.dlq_id)} aria-label=${`Select ${d.id}`} onChange=${() => choose(d)} /></label>
    <a href=${address(['topics', topic, 'events', d.id], {store})}>${d.id}</a>`},
  {title: 'Group', className: 'code', cell: d => d.group || html`<span class="muted">of a spool</span>`},
  {title: 'Reason', className: 'what', cell: d => d.reason},
  {title: 'Attempts', number: true, cell: d => count(d.attempts)},
  {title: 'Died', cell: d => html`<${Time} at=${d.died_at} />`},
  {title: 'State', cell: d => html`<span class="badge ${d.state === 'dead' ? 'bad' : ''}">${d.state === 'dead' ? 'dead' : 'redriven, not acked'}</span>`},
  {title: 'Event as it died', hidden: true, cell: d => html`<${Letter} d=${d} />`},
];

// Letter has the event as it died.
const Letter = ({d}) => html`<details><summary>Event</summary><pre>${JSON.stringify(d.event, null, 2)}</pre></details>`;

// DeadLetters are those of one topic.
export function DeadLetters({topic, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const {group = '', reason = '', cursor = '', order = 'desc'} = query;
  const path = store && storePath(store, 'topics', topic, 'dlq') + '?' + new URLSearchParams(
    {limit: page, order, ...(group && {group}), ...(reason && {reason}), ...(cursor && {cursor})});
  const live = useLive(path || null, {every: 3000});
  const [chosen, setChosen] = useState(new Set());
  const [asking, setAsking] = useState(null); // {verb, selection, of}
  const [job, setJob] = useState(null); // what is under way, or ended
  useEffect(() => setChosen(new Set()), [group, reason, cursor, store]);
  const letters = live.data?.dead_letters;
  const toggle = d => setChosen(c => (c.has(d.dlq_id) ? new Set([...c].filter(id => id !== d.dlq_id)) : new Set([...c, d.dlq_id])));
  const ask = (verb, selection, of) => setAsking({verb, selection, of});
  const start = (verb, body) => {
    setAsking(null);
    setChosen(new Set());
    setJob({verb, body, path: storePath(store, 'topics', topic, 'dlq', verb), key: Date.now()});
  };
  const toRedrive = denied(me, 'operator', undefined, topic), toDiscard = denied(me, 'admin');
  const cli = `sluice dlq list ${topic}${group && ` --group ${group}`} --store ${store}`;
  return html`
    <${Page} title=${topic} code crumbs=${[['Topics', address(['topics'])]]} poll=${live} copy=${path && {path, cli, me}}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Dead letters" />
      ${job && html`<${Job} key=${job.key} job=${job} onChange=${live.refresh} onDone=${() => setJob(null)} />`}
      <div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} />
        <${Filter} label="Group" name="group" query=${query} /><${Filter} label="Exact reason" name="reason" query=${query} first=${false} />
        <${Choice} name="order" query=${{order: 'desc', ...query}} label="First" options=${[['desc', 'newest'], ['asc', 'oldest']]} />
        <span class="muted" role="status">${live.data && plural(live.data.total, 'dead letter')}</span></div>
      ${store === '' ? html`<${NoStore} />` : !letters ? html`<${Waiting} poll=${live.error ? live : known} />`
        : letters.length === 0 ? html`<${Empty}><p>${group || reason ? 'No dead letters match.' : 'No group has given up an event of this topic.'}</p><//>`
        : html`
          <${Reasons} letters=${letters} reason=${reason} whole=${letters.length === live.data.total} />
          <${Acts} ...${{letters, chosen, group, reason, toRedrive, toDiscard, ask}} total=${live.data.total}
            onAll=${() => setChosen(chosen.size === letters.length ? new Set() : new Set(letters.map(d => d.dlq_id)))} />
          <${Table} name="letters" columns=${columns(chosen, toggle, topic, query.store)} rows=${letters} id=${d => d.dlq_id} query=${query} next=${live.data.next} />`}
      ${asking?.verb === 'redrive' && html`<${Redrive} ...${asking} onStart=${start} onClose=${() => setAsking(null)} />`}
      ${asking?.verb === 'discard' && html`<${Discard} ...${asking} topic=${topic} onStart=${start} onClose=${() => setAsking(null)} />`}
    <//>`;
}

// Reasons are the letters of this page by their reason.
function Reasons({letters, reason, whole}) {
  const by = new Map();
  for (const d of letters) by.set(d.reason, (by.get(d.reason) ?? 0) + 1);
  if (by.size < 2 && !reason) return null;
  return html`<p class="reasons">${[...by].sort((a, b) => b[1] - a[1]).map(([text, n]) => html`
    <button key=${text} type="button" class="quiet" aria-pressed=${text === reason} onClick=${() => setQuery({reason: text === reason ? '' : text, cursor: ''}, true)}>${text} <b>${count(n)}</b></button>`)}
    ${!whole && html`<span class="muted">of this page</span>`}</p>`;
}

// Acts are the buttons. All of a filter is all of one group: the one of the filter, or the only one that there is.
function Acts({letters, chosen, group, reason, total, toRedrive, toDiscard, ask, onAll}) {
  const only = group || (letters.length === total && new Set(letters.map(d => d.group)).size === 1 ? letters[0].group : '');
  const some = {dlq_ids: [...chosen]}, all = {group: only, ...(reason && {reason})};
  const none = chosen.size === 0 ? 'Select some first.' : '';
  const which = only ? '' : 'Choose one group first: all of a filter are those of one group.';
  return html`
    <div class="acts">
      <button type="button" class="quiet" onClick=${onAll}>${chosen.size === letters.length ? 'Select none' : 'Select all of this page'}</button>
      <${Guarded} denied=${toRedrive || none} onClick=${() => ask('redrive', some, chosen.size)}>Redrive ${count(chosen.size)} selected…<//>
      <${Guarded} denied=${toRedrive || which} onClick=${() => ask('redrive', all, total)}>Redrive all ${count(total)}…<//>
      <${Guarded} class="danger" denied=${toDiscard || none} onClick=${() => ask('discard', some, chosen.size)}>Discard ${count(chosen.size)} selected…<//>
      <${Guarded} class="danger" denied=${toDiscard || which} onClick=${() => ask('discard', all, total)}>Discard all ${count(total)}…<//>
      ${(toRedrive || toDiscard || which) && html`<span class="muted">${toRedrive || which || toDiscard}</span>`}
    </div>`;
}

// Before narrows all of a group to what died earlier.
function Before({id, value, onInput}) {
  return html`<p><label for=${id}>Only those that died before (empty: all)</label><input id=${id} class="wide" type="datetime-local" step="1" value=${value} onInput=${onInput} /></p>`;
}

const withBefore = (selection, before) => ({...selection, ...(selection.group && before && {before: Date.parse(before)})});

function Redrive({selection, of, onStart, onClose}) {
  const id = useId();
  const [rate, setRate] = useState('100');
  const [before, setBefore] = useState('');
  const act = async () => onStart('redrive', {...withBefore(selection, before), rate: Number(rate)});
  return html`
    <${Confirm} title=${`Redrive ${plural(of, 'dead letter')}`} verb="Redrive" ready=${Number(rate) > 0} act=${act} onClose=${onClose}>
      <p>They are delivered again to the group that gave them up, and to no other; once they are acked they are gone from this list.</p>
      <p><label for=${id}>How many a second</label><input id=${id} class="wide" type="number" min="0.1" step="any" value=${rate} onInput=${e => setRate(e.target.value)} /></p>
      ${selection.group && html`<${Before} id="${id}-before" value=${before} onInput=${e => setBefore(e.target.value)} />`}
    <//>`;
}

function Discard({selection, of, topic, onStart, onClose}) {
  const id = useId();
  const [before, setBefore] = useState('');
  const act = async () => onStart('discard', withBefore(selection, before));
  return html`
    <${Confirm} title=${`Discard ${plural(of, 'dead letter')}`} verb="Discard" danger typed=${selection.group || topic} act=${act} onClose=${onClose}>
      <p>They are gone for good.${selection.group && html` These are all of the group <code>${selection.group}</code>${selection.reason && html` with the reason “${selection.reason}”`}.`}</p>
      ${selection.group && html`<${Before} id="${id}-before" value=${before} onInput=${e => setBefore(e.target.value)} />`}
    <//>`;
}

const words = {redrive: 'redriven', discard: 'discarded'};

// Job makes a change and shows its progress. It stops when it is cancelled, and when the page goes.
function Job({job: {verb, body, path}, onChange, onDone}) {
  const [state, setState] = useState({done: 0, of: 0});
  const stop = useRef(new AbortController());
  useEffect(() => {
    const {signal} = stop.current;
    api.ndjson(path, {body, signal, onObject: line => {
      if (line.code) throw Object.assign(new Error(line.error), {status: 500});
      setState(s => ({...s, ...line}));
    }}).catch(error => setState(s => ({...s, error: signal.aborted ? null : error, stopped: signal.aborted}))).finally(onChange);
    return () => stop.current.abort();
  }, []);
  const {done, of, ok, error, stopped} = state;
  const ended = ok || error || stopped;
  return html`
    <section class="card rollout ${ok ? 'complete' : ''}" aria-label="Progress">
      <div class="line"><div role="status"><b>${count(done)} of ${count(of)}</b> ${words[verb]}${stopped && ': stopped; do the same again for the rest'}.</div>
        ${ended ? html`<button type="button" class="quiet" onClick=${onDone}>Close</button>` : html`<button type="button" onClick=${() => stop.current.abort()}>Stop</button>`}</div>
      <progress max=${of || 1} value=${done} aria-label="Progress"></progress>
      <${ErrorNote} error=${error} />
    </section>`;
}
