// The progress of a change: the sidecars that have acked it, have not, or refuse
// it.
import {html, useEffect, useRef, useState} from './ui.js';
import {useLive} from './live.js';
import {plural} from './format.js';

const watching = 400;    // ms between polls while sidecars are missing
const settled = 5000;    // afterwards
const patience = 60_000; // ms until it polls less often

// progress groups the sidecars that a change {name, version}, or {name, deleted}, has
// to reach by their answer.
export function progress(sidecars, change) {
  const out = {acked: [], waiting: [], refused: [], away: []};
  for (const s of sidecars) {
    const version = s.versions?.[change.name];
    const has = change.deleted ? version === undefined : version >= change.version;
    if (has) out.acked.push(s);
    else if (!s.connected) out.away.push(s);
    else if (refuses(s.rejected, change)) out.refused.push(s);
    else out.waiting.push(s);
  }
  return out;
}

// An older version that was refused says nothing about this one.
const refuses = (rejected, change) => rejected?.policy === change.name && !(rejected.version < change.version);

// Rollout watches a change {name, version, at} arrive.
export function Rollout({change, onDone}) {
  const done = useRef(0); // when all had it
  const [eager, setEager] = useState(true);
  const poll = useLive(`/v1/sidecars?limit=1000&policy=${encodeURIComponent(change.name)}`, {every: eager ? watching : settled});
  const p = poll.data && progress(poll.data.sidecars, change);
  useEffect(() => {
    if (p) setEager(p.waiting.length > 0 && Date.now() - change.at < patience);
  }, [poll.data]);
  if (!p) return html`<section class="card rollout" role="status">Saved. Waiting for the sidecars…</section>`;
  const all = p.acked.length + p.waiting.length + p.refused.length;
  const complete = p.acked.length === all;
  if (complete && !done.current) done.current = Date.now();
  const what = change.deleted ? `The deletion of ${change.name}` : `${change.name}, version ${change.version}`;
  return html`
    <section class="card rollout ${complete ? 'complete' : ''}" aria-label="Progress of the change">
      <div class="line">
        <div role="status">
          <strong class="code">${what}</strong>${': '}
          ${all === 0
            ? html`no sidecar is connected; sidecars get it when they connect.`
            : html`acked by <b class="acked">${p.acked.length} of ${plural(all, 'sidecar')}</b>${complete && `, ${seconds(done.current - change.at)} after saving`}`}
        </div>
        <button type="button" class="quiet" onClick=${onDone}>Close</button>
      </div>
      ${all > 0 && html`<progress max=${all} value=${p.acked.length} aria-label="Sidecars that have acked"></progress>`}
      ${p.waiting.length > 0 && html`<p>Not yet: <${Names} list=${p.waiting} /></p>`}
      ${p.refused.map(s => html`<p class="bad" key=${s.node_id}><b class="code">${s.node_id}</b> refuses it: ${s.rejected.reason}</p>`)}
      ${p.away.length > 0 && html`<p class="muted">Not connected, get it when they return: <${Names} list=${p.away} /></p>`}
    </section>`;
}

const seconds = ms => `${(ms / 1000).toFixed(1)} s`;

const some = 12; // names that are spelled out

const Names = ({list}) => html`<span class="code">${list.slice(0, some).map(s => s.node_id).join(', ')}</span>${list.length > some && ` and ${list.length - some} more`}`;
