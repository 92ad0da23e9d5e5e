// The sidecars: their state, the policies that each runs or refuses, and its shares.
import {Ago, denied, Filter, Guarded, html, Page, topicLink, useState, Waiting} from './ui.js';
import {api} from './api.js';
import {Confirm} from './change.js';
import {perSecond} from './format.js';
import {useLive} from './live.js';

const page = 200; // rows at first, and with each "more"

export function Fleet({me, query}) {
  const poll = useLive('/v1/sidecars?limit=1000', {list: 'sidecar'});
  const policies = useLive('/v1/policies', {every: 5000});
  const topics = useLive('/v1/topics?limit=1000');
  const [most, setMost] = useState(page);
  const [open, setOpen] = useState(null);
  const [forgetting, setForgetting] = useState(null); // the sidecar
  async function forget() {
    await api.forget(forgetting);
    setForgetting(null);
    poll.refresh();
  }
  const all = poll.data?.sidecars ?? [];
  const latest = new Map((policies.data?.policies ?? []).map(p => [p.name, p.version]));
  const rows = all
    .map((s, i) => ({s, key: `${i}`, behind: policies.data ? behind(s, latest) : []}))
    .filter(({s}) => (s.node_id + ' ' + s.address).toLowerCase().includes((query.filter ?? '').toLowerCase()));
  return html`
    <${Page} title="Fleet" poll=${poll} actions=${poll.data && html`<${Summary} rows=${rows} />`}>
      <div class="toolbar"><${Filter} label="Filter sidecars" name="filter" query=${query} /></div>
      ${!poll.data ? html`<${Waiting} poll=${poll} />`
        : rows.length === 0 ? html`<p class="empty">${all.length ? 'No sidecar matches the filter.' : 'No sidecar has connected yet: start one with --control-plane.'}</p>`
        : html`
          <table class="fleet cards">
            <thead><tr><th scope="col">Sidecar</th><th scope="col">State</th><th scope="col">Last seen</th><th scope="col">Policies</th>
              <th scope="col">Version</th><th scope="col">Store</th><th scope="col">Replay address</th></tr></thead>
            <tbody>${rows.slice(0, most).map(row => html`
              <${Sidecar} key=${row.key} ...${row} id=${row.key} open=${open === row.key} topics=${topics.data?.topics ?? []} latest=${latest}
                no=${denied(me, 'admin')} onForget=${() => setForgetting(row.s.node_id)} onToggle=${() => setOpen(open === row.key ? null : row.key)} />`)}
            </tbody>
          </table>`}
      ${rows.length > most && html`<button type="button" onClick=${() => setMost(most + page)}>Show ${Math.min(page, rows.length - most)} more</button>`}
      ${forgetting && html`
        <${Confirm} title="Forget ${forgetting}" verb="Forget" danger act=${forget} onClose=${() => setForgetting(null)}>
          <p>This sidecar is gone, and may have events that no other sidecar has: replays of the fleet name it until it is back. Forget it if it will not come back.</p>
        <//>`}
    <//>`;
}

// behind lists the policies of which a sidecar has not acked the latest version.
const behind = (s, latest) => Object.keys(s.versions ?? {}).filter(name => latest.has(name) && s.versions[name] < latest.get(name));

function Summary({rows}) {
  const number = f => rows.filter(f).length;
  const away = number(r => !r.s.connected), late = number(r => r.behind.length > 0), refusing = number(r => r.s.rejected);
  return html`
    <span class="figures" role="status"><b>${rows.length}</b> ${rows.length === 1 ? 'sidecar' : 'sidecars'}
      <b class=${away ? 'warn' : ''}>${away}</b> away <b class=${late ? 'warn' : ''}>${late}</b> behind <b class=${refusing ? 'bad' : ''}>${refusing}</b> refusing</span>`;
}

function Sidecar({s, id, behind: late, latest, topics, open, no, onForget, onToggle}) {
  const names = Object.keys(s.versions ?? {}).sort();
  const unmet = Object.entries(s.unmet_concerns ?? {});
  return html`
    <tr>
      <th scope="row"><button type="button" class="disclose code" aria-expanded=${open} aria-controls="more-${id}" onClick=${onToggle}>${s.node_id}</button></th>
      <td data-label="State">${s.connected ? html`<span class="dot ok"></span>connected` : html`<span class="dot off"></span>away`}
        ${s.missing && html` <span class="badge bad">missing</span> <${Guarded} denied=${no} onClick=${onForget}>Forget…<//>`}
        ${s.rejected && html` <span class="badge bad">refuses</span>`}${s.refused_sessions && html` <span class="badge bad">node id used twice</span>`}${unmet.length > 0 && html` <span class="badge bad">unmet concern</span>`}</td>
      <td data-label="Last seen"><${Ago} at=${s.last_seen} /></td>
      <td data-label="Policies">${names.length}${' '}
        ${late.length > 0 ? html`<span class="badge warn">${late.length} behind</span>` : !s.rejected && html`<span class="muted">all current</span>`}</td>
      <td class="code" data-label="Version">${s.version || '–'}</td>
      <td class="code clip" data-label="Store" title=${s.store_id}>${s.store_id || '–'}</td>
      <td class="code" data-label="Replay address">${s.address || '–'}</td>
    </tr>
    ${s.rejected && html`
      <tr class="reason"><td colspan="7">
        <b class="bad">Refuses ${s.rejected.policy}${s.rejected.version ? `, version ${s.rejected.version}` : ''}:</b> ${s.rejected.reason}
      </td></tr>`}
    ${s.refused_sessions && html`
      <tr class="reason"><td colspan="7">
        <b class="bad">Another process with this node id is refused:</b> the replay API of the last one is <span class="code">${s.refused_sessions.address || 'not known'}</span>
      </td></tr>`}
    ${unmet.length > 0 && html`
      <tr class="reason"><td colspan="7">
        <b class="bad">Refuses events, since its store does not meet their write concern:</b>${' '}
        ${unmet.map(([topic, concern], i) => html`${i > 0 && ', '}<a class="code" href=${topicLink(topic)}>${topic}</a> (${concern})`)}
      </td></tr>`}
    ${open && html`
      <tr class="more" id="more-${id}"><td colspan="7"><div class="columns">
        <${Versions} s=${s} names=${names} latest=${latest} /><${Shares} s=${s} topics=${topics} />
      </div></td></tr>`}`;
}

const Versions = ({s, names, latest}) => html`
  <div><h3>Policies in force</h3>
    ${names.length === 0 ? html`<p class="muted">None yet.</p>` : html`
      <table><thead><tr><th scope="col">Policy</th><th scope="col" class="number">Acked</th><th scope="col" class="number">Latest</th></tr></thead>
        <tbody>${names.map(name => html`
          <tr key=${name}><th scope="row" class="code">${name}</th><td class="number ${s.versions[name] < latest.get(name) ? 'warn' : ''}">${s.versions[name]}</td>
            <td class="number">${latest.get(name) ?? html`<span class="muted">deleted</span>`}</td></tr>`)}
        </tbody></table>`}
  </div>`;

function Shares({s, topics}) {
  const mine = topics.map(t => ({t, u: t.by_sidecar?.find(u => u.node_id === s.node_id)})).filter(e => e.u);
  return html`
    <div><h3>Topics</h3>
      ${mine.length === 0 ? html`<p class="muted">None now.</p>` : html`
        <table>
          <thead><tr><th scope="col">Topic</th><th scope="col" class="number">Accepted /s</th><th scope="col" class="number">Refused /s</th>
            <th scope="col" class="number">Share /s</th></tr></thead>
          <tbody>${mine.map(({t, u}) => html`
            <tr key=${t.topic}><th scope="row" class="code"><a href=${topicLink(t.topic)}>${t.topic}</a></th><td class="number">${perSecond(u.allowed_per_second)}</td>
              <td class="number ${u.denied_per_second > 0 ? 'bad' : ''}">${perSecond(u.denied_per_second)}</td>
              <td class="number">${u.share_per_second == null ? html`<span class="muted">–</span>` : `${perSecond(u.share_per_second)} of ${perSecond(t.rate)}`}</td></tr>`)}
          </tbody></table>`}
    </div>`;
}
