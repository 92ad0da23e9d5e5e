// The sidecars, those with trouble first.
import {Ago, denied, Empty, Filter, Guarded, html, Page, topicLink, useState, Waiting} from './ui.js';
import {api} from './api.js';
import {address} from './router.js';
import {Confirm} from './change.js';
import {useLive} from './live.js';
import {Table} from './table.js';

const page = 200; // rows at first, and with each "more"

export function Fleet({me, query}) {
  const live = useLive('/v1/sidecars?limit=1000', {list: 'sidecar'});
  const policies = useLive('/v1/policies', {list: 'policy'});
  const overview = useLive('/v1/overview', {every: 60_000, list: 'overview'});
  const [most, setMost] = useState(page);
  const [forgetting, setForgetting] = useState(null); // the node id
  async function forget() {
    await api.forget(forgetting);
    setForgetting(null);
    live.refresh();
  }
  const all = live.data?.sidecars ?? [];
  const latest = policies.data && new Map(policies.data.policies.map(p => [p.name, p.version]));
  const incidents = overview.data?.incidents ?? [];
  const rows = all.map(s => ({s, behind: latest ? behind(s, latest) : [], troubles: troublesOf(s, incidents)}))
    .filter(({s}) => `${s.node_id} ${s.address}`.toLowerCase().includes((query.filter ?? '').toLowerCase()))
    .sort((a, b) => rank(b) - rank(a) || (a.s.node_id < b.s.node_id ? -1 : 1));
  return html`
    <${Page} title="Fleet" poll=${live} copy=${{path: '/v1/sidecars?limit=1000', cli: 'sluice fleet', me}} actions=${live.data && html`<${Summary} rows=${rows} />`}>
      <div class="toolbar"><${Filter} label="Filter sidecars" name="filter" query=${query} /></div>
      ${!live.data ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}>${all.length ? 'No sidecar matches the filter.' : html`<p>No sidecar has connected yet.</p><p>Start one with <code>sluice-sidecar --control-plane HOST:18000</code>.</p>`}<//>`
        : html`<${Table} name="fleet" columns=${columns(denied(me, 'admin'), setForgetting)} rows=${rows.slice(0, most)} id=${r => r.s.node_id + '\0' + r.s.store_id}
            details=${r => r.troubles.length > 0 && html`<${Troubles} list=${r.troubles} />`} />`}
      ${rows.length > most && html`<button type="button" onClick=${() => setMost(most + page)}>Show ${Math.min(page, rows.length - most)} more</button>`}
      ${forgetting && html`
        <${Confirm} title="Forget ${forgetting}" verb="Forget" danger act=${forget} onClose=${() => setForgetting(null)}>
          <p>This sidecar is gone, and may have events that no other sidecar has: replays of the fleet name it until it is back. Forget it if it will not come back.</p>
        <//>`}
    <//>`;
}

// rank puts trouble first: what is missing or critical, then other trouble, then what is behind, then what has left.
function rank({s, behind: late, troubles}) {
  if (s.missing || troubles.some(t => t.bad)) return 4;
  if (troubles.length > 0) return 3;
  if (late.length > 0) return 2;
  return s.connected ? 0 : 1;
}

// behind lists the policies of which a sidecar has not acked the latest version.
const behind = (s, latest) => Object.keys(s.versions ?? {}).filter(name => latest.has(name) && s.versions[name] < latest.get(name));

// troublesOf are what is wrong with a sidecar: [{bad, what, why}].
export function troublesOf(s, incidents) {
  const list = incidents.filter(i => i.node_id === s.node_id && !['policy_rejected', 'sidecar_missing'].includes(i.kind))
    .map(i => ({bad: i.severity === 'critical', what: i.text, why: i.remedy}));
  if (s.rejected) list.push({bad: true, what: `Refuses ${s.rejected.policy}${s.rejected.version ? `, version ${s.rejected.version}` : ''}:`, why: s.rejected.reason});
  if (s.refused_sessions) list.push({bad: true, what: 'Another process with this node id is refused:', why: `the replay API of the last one is ${s.refused_sessions.address || 'not known'}`});
  const unmet = Object.entries(s.unmet_concerns ?? {});
  if (unmet.length > 0) {
    list.push({bad: true, what: 'Refuses events, since its store does not meet their write concern:',
      why: unmet.map(([topic, concern], i) => html`${i > 0 && ', '}<a class="code" href=${topicLink(topic)}>${topic}</a> (${concern})`)});
  }
  return list;
}

export const Troubles = ({list}) => list.map((t, i) => html`<p key=${i} class="note ${t.bad ? 'bad' : 'warn'}"><b>${t.what}</b> ${t.why}</p>`);

function Summary({rows}) {
  const number = f => rows.filter(f).length;
  const away = number(r => !r.s.connected), late = number(r => r.behind.length > 0), refusing = number(r => r.s.rejected);
  return html`
    <span class="figures" role="status"><b>${rows.length}</b> ${rows.length === 1 ? 'sidecar' : 'sidecars'}
      <b class=${away ? 'warn' : ''}>${away}</b> away <b class=${late ? 'warn' : ''}>${late}</b> behind <b class=${refusing ? 'bad' : ''}>${refusing}</b> refusing</span>`;
}

// State is what the control plane knows of the sidecar's connection.
export const State = ({s}) => html`
  ${s.connected ? html`<span><span class="dot ok"></span>connected</span>` : html`<span><span class="dot off"></span>away</span>`}
  ${s.missing && html` <span class="badge bad">missing</span>`}
  ${s.rejected && html` <span class="badge bad">refuses</span>`}${s.refused_sessions && html` <span class="badge bad">node id used twice</span>`}
  ${s.unmet_concerns && html` <span class="badge bad">unmet concern</span>`}`;

const columns = (no, onForget) => [
  {title: 'Sidecar', className: 'code', cell: ({s}) => html`<a href=${address(['fleet', s.node_id])}>${s.node_id}</a>`},
  {title: 'State', cell: ({s}) => html`<${State} s=${s} />${s.missing && html` <${Guarded} denied=${no} onClick=${() => onForget(s.node_id)}>Forget…<//>`}`},
  {title: 'Last seen', cell: ({s}) => html`<${Ago} at=${s.last_seen} />`},
  {title: 'Policies', cell: ({s, behind: late}) => html`${Object.keys(s.versions ?? {}).length}${' '}
    ${late.length > 0 ? html`<span class="badge warn" title=${late.join(', ')}>${late.length} behind</span>` : !s.rejected && html`<span class="muted">all current</span>`}`},
  {title: 'Version', className: 'code', cell: ({s}) => s.version || '–'},
  {title: 'Store', className: 'code clip', cell: ({s}) => html`<span title=${s.store_id}>${s.store_id || '–'}</span>`},
  {title: 'Replay address', className: 'code', cell: ({s}) => s.address || '–'},
];
