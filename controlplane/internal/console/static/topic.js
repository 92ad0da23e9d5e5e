// The page of one topic: its rates, its sidecars, and a form for its limits.
import {denied, Guarded, html, Page, PausedGroups, policyLink, TopicTabs, useState, Waiting} from './ui.js';
import {address} from './router.js';
import {content, effective, inherited, matching, pausedGroups, set} from './policy.js';
import {now} from './api.js';
import {count, exact, perSecond} from './format.js';
import {useLive} from './live.js';
import {DeleteTopic} from './topicdialogs.js';
import {Graph} from './sparkline.js';
import {Editor} from './editor.js';
import {ChangeDialog} from './change.js';
import {Rollout} from './rollout.js';

export function Topic({topic: name, query, me}) {
  const rates = useLive(`/v1/topics?history=1&limit=1&prefix=${encodeURIComponent(name)}`, {every: 2000});
  const known = useLive('/v1/policies', {every: 5000});
  const [change, setChange] = useState(null);
  const [pausing, setPausing] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const stores = useLive('/v1/stores').data?.stores;
  const [target, setTarget] = useState(name);
  const topic = rates.data?.topics.find(t => t.topic === name);
  const policies = known.data?.policies;
  const poll = known.stale ? known : rates;
  if (!policies) return html`<${Page} title=${name} code poll=${poll}><${Waiting} poll=${known} /><//>`;

  const saved = policy => {
    setPausing(false);
    setChange({name: policy.name, version: policy.version, at: Date.now()});
    known.refresh();
  };
  const paused = effective('paused', name, policies);
  const no = denied(me, 'editor');
  return html`
    <${Page} title=${name} code crumbs=${[['Topics', address(['topics'])]]} poll=${poll} actions=${html`
      ${paused && html`<span class="badge warn">paused</span>`}
      <${PausedGroups} names=${pausedGroups(name, policies)} />
      ${no && html`<span class="muted">${no}</span>`}
      <${Guarded} denied=${no} onClick=${() => setPausing(true)}>${paused ? 'Resume…' : 'Pause…'}<//>
      <${Guarded} class="danger" denied=${denied(me, 'admin') || (stores?.length === 0 && 'No sidecar is connected.')} disabled=${!stores} onClick=${() => setDeleting(true)}>Delete…<//>`}>
      <${TopicTabs} topic=${name} store=${query.store} at="Limits" />
      ${change && html`<${Rollout} key=${change.name + change.version} change=${change} onDone=${() => setChange(null)} />`}
      <div class="columns">
        <section class="card" aria-label="Rates">
          <${Rates} name=${name} topic=${topic} policies=${policies} asked=${Boolean(rates.data)} />
        </section>
        <section class="card" aria-label="Limits">
          <${Target} name=${name} policies=${policies} target=${target} onTarget=${setTarget} />
          <${Editor} key=${target} name=${target} policy=${policies.find(p => p.name === target) ?? null} policies=${policies} me=${me} onSaved=${saved} />
        </section>
      </div>
      ${deleting && html`<${DeleteTopic} topic=${name} stores=${stores} onDeleted=${() => { location.hash = address(['topics']); }} onClose=${() => setDeleting(false)} />`}
      ${pausing && html`<${Pause} name=${name} paused=${paused} policies=${policies} onSaved=${saved} onClose=${() => setPausing(false)} />`}
    <//>`;
}

function Rates({name, topic, policies, asked}) {
  if (!topic) return html`<p class="empty">${asked ? 'No sidecar reports this topic now.' : 'Loading…'}</p>`;
  const {rate, scope, per, by_sidecar: usages = []} = topic;
  const limit = per ? 0 : rate * (scope === 'fleet' ? 1 : usages.length); // nobody counts the tenants that publish now
  const whose = (per ? '/s a tenant, ' : '/s ') + (scope === 'fleet' ? 'for the fleet' : per ? 'each sidecar' : 'each');
  return html`
    <dl class="figures">
      <div><dt>Accepted</dt><dd class="accepted">${perSecond(topic.allowed_per_second)}<small>/s</small></dd></div>
      <div><dt>Refused</dt><dd class=${topic.denied_per_second > 0 ? 'bad' : ''}>${perSecond(topic.denied_per_second)}<small>/s</small></dd></div>
      <div><dt>Limit</dt><dd>${rate ? exact(rate) : 'none'}<small>${rate ? whose : ''}</small></dd></div>
      <div><dt>Policy</dt><dd class="code">${topic.policy ? html`<a href=${policyLink(topic.policy)}>${topic.policy}</a>` : 'defaults'}</dd></div>
    </dl>
    <${Graph} history=${topic.history} limit=${limit} label=${`${name} over the last minute`} />
    <${BySidecar} topic=${topic} />
    <${ByReason} topic=${topic} />`;
}

// ByReason lists why events were refused in the last hour, and today.
function ByReason({topic}) {
  const today = new Date(now()).toISOString().slice(0, 10);
  const used = useLive(`/v1/usage?${new URLSearchParams({from: today, prefix: topic.topic, limit: 1})}`);
  const ofDay = used.data?.usage.find(u => u.topic === topic.topic)?.refusals ?? {};
  const {refusals: ofHour = {}} = topic;
  const codes = [...new Set([...Object.keys(ofHour), ...Object.keys(ofDay)])].sort((a, b) => (ofDay[b] ?? 0) - (ofDay[a] ?? 0) || a.localeCompare(b));
  return html`
    <h2>Refused, by reason</h2>
    ${codes.length === 0 ? html`<p class="muted">Nothing was refused today.</p>` : html`
    <table class="usage">
      <thead><tr><th scope="col">Error code</th><th scope="col" class="number">Last hour</th><th scope="col" class="number">Today (UTC)</th></tr></thead>
      <tbody>${codes.map(code => html`
        <tr key=${code}><th scope="row" class="code">${code}</th><td class="number">${count(ofHour[code] ?? 0)}</td><td class="number">${count(ofDay[code] ?? 0)}</td></tr>`)}
      </tbody>
    </table>`}`;
}

const part = (n, most) => ({width: `${(n / most) * 100}%`});

// BySidecar lists the sidecars of the topic, the one that refuses most first.
function BySidecar({topic}) {
  const usages = [...(topic.by_sidecar ?? [])].sort((a, b) => b.denied_per_second - a.denied_per_second || a.node_id.localeCompare(b.node_id));
  const most = Math.max(1, ...usages.map(u => u.allowed_per_second + u.denied_per_second));
  const shares = usages.some(u => u.share_per_second != null);
  return html`
    <h2>By sidecar</h2>
    <table class="usage">
      <thead><tr><th scope="col">Sidecar</th><td class="bars"></td><th scope="col" class="number">Accepted /s</th><th scope="col" class="number">Refused /s</th>
        ${shares && html`<th scope="col" class="number">Share /s</th>`}</tr></thead>
      <tbody>${usages.map((u, i) => html`
        <tr key=${u.node_id + i}>
          <th scope="row" class="code">${u.node_id}</th>
          <td class="bars" aria-hidden="true">
            <span class="bar allowed" style=${part(u.allowed_per_second, most)}></span><span class="bar denied" style=${part(u.denied_per_second, most)}></span>
          </td>
          <td class="number">${perSecond(u.allowed_per_second)}</td>
          <td class="number ${u.denied_per_second > 0 ? 'bad' : 'muted'}">${perSecond(u.denied_per_second)}</td>
          ${shares && html`<td class="number">${u.share_per_second == null ? '–' : perSecond(u.share_per_second)}</td>`}
        </tr>`)}
      </tbody>
    </table>`;
}

// Target selects the policy of the form: the topic's own, or one that other topics
// share.
function Target({name, policies, target, onTarget}) {
  const others = matching(name, policies);
  const own = policies.some(p => p.name === name);
  return html`
    <div class="target">
      <h2>Limits</h2>
      <label>of <select value=${target} aria-label="Which policy to change" onChange=${e => onTarget(e.target.value)}>
        <option value=${name}>${name}, this topic alone${own ? '' : ' (new policy)'}</option>
        ${others.map(p => html`<option key=${p.name} value=${p.name}>${p.name}, every topic that begins so</option>`)}
      </select></label>
      ${policies.some(p => p.name === target) && html`<a href=${policyLink(target)}>History</a>`}
    </div>`;
}

// Pause sets or lifts the pause in the topic's own policy.
function Pause({name, paused, policies, onSaved, onClose}) {
  const own = policies.find(p => p.name === name) ?? null;
  // Resuming unsets the field unless the topic would then inherit a pause.
  const resumed = inherited('paused', name, policies).value ? false : undefined;
  return html`
    <${ChangeDialog} title=${paused ? `Resume ${name}` : `Pause ${name}`} verb=${paused ? 'Resume' : 'Pause'} name=${name} base=${own}
      doc=${set(content(own), 'paused', paused ? resumed : true)} policies=${policies} onSaved=${onSaved} onClose=${onClose}
      note=${paused ? 'Publishes are accepted again, within the limits.' : 'Every publish is refused with topic_paused until the topic is resumed. Deliveries go on.'} />`;
}
